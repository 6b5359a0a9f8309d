"""Certificates by sparse randomized smoothing."""

from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.class_counts import ClassCounts, Share, join, merge
from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sparse_smoothing import SparseSmoothing, samples_needed

__all__ = ["Certificate", "ClassCounts", "Noise", "Share", "SparseSmoothing", "join", "merge", "samples_needed"]
