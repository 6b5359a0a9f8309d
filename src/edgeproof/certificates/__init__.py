"""Certificates by sparse randomized smoothing."""

from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sparse_smoothing import SparseSmoothing, samples_needed
from edgeproof.certificates.votes import Share, Votes, join, merge

__all__ = ["Certificate", "Noise", "Share", "SparseSmoothing", "Votes", "join", "merge", "samples_needed"]
