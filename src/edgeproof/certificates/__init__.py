"""Certificates by sparse randomized smoothing."""

from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.class_counts import ClassCounts, CountsPart, join_parts, merge_counts
from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sparse_smoothing import ABSTAIN, SparseSmoothing, samples_needed

__all__ = [
    "ABSTAIN",
    "Certificate",
    "ClassCounts",
    "CountsPart",
    "Noise",
    "SparseSmoothing",
    "join_parts",
    "merge_counts",
    "samples_needed",
]
