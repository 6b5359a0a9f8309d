"""A page that says how robust models are, to people who were not there: one file, no network."""

from edgeproof.report.filters import Filter, describe_filter
from edgeproof.report.outcomes import Outcomes
from edgeproof.report.page import render, write
from edgeproof.report.reading import nodes_file, read
from edgeproof.report.runs import Attacked, Certified, Row, Run

__all__ = [
    "Attacked",
    "Certified",
    "Filter",
    "Outcomes",
    "Row",
    "Run",
    "describe_filter",
    "nodes_file",
    "read",
    "render",
    "write",
]
