"""HTML report of robustness results: one self-contained file that loads nothing from a network."""

from edgeproof.report.filters import Filter, describe_filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.page import render, write
from edgeproof.report.reading import nodes_file, read
from edgeproof.report.runs import (
    AttackRow,
    AttackTable,
    CertificateSummary,
    FragilityCounts,
    ProvenRow,
    Run,
    ThreatModel,
)

__all__ = [
    "AttackRow",
    "AttackTable",
    "CertificateSummary",
    "Filter",
    "FragilityCounts",
    "Outcomes",
    "ProvenRow",
    "Run",
    "ThreatModel",
    "describe_filter",
    "nodes_file",
    "read",
    "render",
    "write",
]
