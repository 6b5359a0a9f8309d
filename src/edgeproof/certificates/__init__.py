"""Certificates by sparse randomized smoothing."""

from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sparse_smoothing import SparseSmoothing, samples_needed
from edgeproof.certificates.votes import Votes, merge

__all__ = ["Certificate", "Noise", "SparseSmoothing", "Votes", "merge", "samples_needed"]
