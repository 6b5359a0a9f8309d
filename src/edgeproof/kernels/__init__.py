"""Kernels: one backend a module, chosen by :mod:`~edgeproof.kernels.dispatch`."""
