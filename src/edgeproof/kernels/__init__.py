"""Compute kernels, one backend per module; :mod:`~edgeproof.kernels.dispatch` selects the backend of each call."""
