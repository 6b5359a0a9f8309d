"""Render a report as one HTML page with inline style, script and data, and a Content Security Policy."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from edgeproof._files import check_writable, write_bytes
from edgeproof._version import __version__
from edgeproof.report._html import Html, join, json_block, tag
from edgeproof.report.groups import group
from edgeproof.report.runs import Run
from edgeproof.report.sections._parts import Page, Section
from edgeproof.report.sections.attacks import attacks
from edgeproof.report.sections.certificates import certificates
from edgeproof.report.sections.comparison import comparison
from edgeproof.report.sections.curves import curves
from edgeproof.report.sections.filters import filters
from edgeproof.report.sections.models import models
from edgeproof.report.sections.nodes import nodes
from edgeproof.report.sections.proven import proven
from edgeproof.report.sections.reproduce import reproduce
from edgeproof.report.sections.single_nodes import single_nodes
from edgeproof.report.sections.summary import summary

TITLE = "Robustness report"
_SECTIONS = (
    summary,
    curves,
    models,
    comparison,
    attacks,
    nodes,
    single_nodes,
    proven,
    certificates,
    filters,
    reproduce,
)
# Concatenated in this order.
_SCRIPTS = ("svg.js", "marks.js", "lines.js", "bars.js", "tables.js", "nodes.js", "main.js")


def render(runs: Sequence[Run] | Run, *, title: str = TITLE, command: str = "") -> str:
    """Render runs as one self-contained HTML page: it needs no network, server or other file.

    Args:
        runs: One run or several.
        title: Title of the page.
        command: Command that creates the page, shown after the commands of the runs.

    Raises:
        ValueError: If there are no runs, or if certificates of one model have different settings.

    >>> import edgeproof as ep, torch
    >>> data, nodes, model = ep.datasets.load("csbm"), torch.arange(50), ep.models.GCN(21, 2)
    >>> scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM"])
    >>> page = render([Run.of("my GCN", model, data, nodes, evaluation=scores)])
    >>> page.startswith("<!doctype html>"), "http://" in page.replace("http://www.w3.org/2000/svg", "")
    (True, False)
    """
    runs = [runs] if isinstance(runs, Run) else list(runs)
    if not runs:
        raise ValueError("expected at least one run to report, got none")
    for run in runs:
        if not isinstance(run, Run):
            raise TypeError(f"expected runs from edgeproof.report.Run.of or edgeproof.report.read, got {run!r}")
    page = Page(title, tuple(group(runs)), command)
    sections = [section for make in _SECTIONS if (section := make(page)) is not None]
    charts = {name: chart for section in sections for name, chart in section.charts.items()}
    style = _asset("style.css")
    script = "".join(["(() => {\n'use strict';\n", *map(_asset, _SCRIPTS), "})();\n"])
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    return Template(_asset("page.html")).substitute(
        policy=f"{policy}; form-action 'none'",
        title=tag("title", {}, title),
        heading=join([title]),
        style=style,
        nav=join(tag("li", {}, tag("a", {"href": f"#{section.id}"}, section.title)) for section in sections),
        sections=join(map(_section, sections)),
        version=__version__,
        charts=json_block(charts),
        script=script,
    )


def write(
    runs: Sequence[Run] | Run, path: str | Path = "report.html", *, title: str = TITLE, command: str = ""
) -> None:
    """Write the page of :func:`render` atomically.

    Args:
        runs: One run or several, from :meth:`Run.of` or :func:`read`.
        path: Output file.
        title: Title of the page.
        command: Command that creates the page.
    """
    path = Path(path)
    check_writable(path)
    # Commands may contain file names that are not valid Unicode.
    write_bytes(path, render(runs, title=title, command=command).encode("utf-8", "replace"))


def _section(section: Section) -> Html:
    heading = tag("h2", {"id": f"{section.id}-title"}, section.title)
    return tag("section", {"id": section.id, "aria-labelledby": f"{section.id}-title"}, heading, section.body)


def _asset(name: str) -> str:
    return (files("edgeproof.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
