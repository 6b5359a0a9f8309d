"""Certificates by sparse randomized smoothing."""
