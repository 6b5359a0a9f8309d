"""Certificates: sparse randomized smoothing, and the exact worst case of one-hop models."""

from edgeproof.certificates.certificate import Certificate
from edgeproof.certificates.class_counts import ClassCounts, CountsPart, join_parts, merge_counts
from edgeproof.certificates.regions import Noise
from edgeproof.certificates.sparse_smoothing import ABSTAIN, SparseSmoothing, samples_needed
from edgeproof.certificates.worst_case import WithBoundedInfluence, WithOneHopTerms, WorstCase
from edgeproof.certificates.worst_case_certificate import BudgetCertificate, WorstCaseCertificate

__all__ = [
    "ABSTAIN",
    "BudgetCertificate",
    "Certificate",
    "ClassCounts",
    "CountsPart",
    "Noise",
    "SparseSmoothing",
    "WithBoundedInfluence",
    "WithOneHopTerms",
    "WorstCase",
    "WorstCaseCertificate",
    "join_parts",
    "merge_counts",
    "samples_needed",
]
