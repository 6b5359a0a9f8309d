"""Kernels: one backend a module, chosen by :mod:`~edgeproof.propagation.kernels.dispatch`."""
