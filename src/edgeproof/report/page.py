"""The page as one text: markup, style, script and figures together, and a policy that lets nothing else in."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from edgeproof._files import check_writable, replacing
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
from edgeproof.report.sections.headline import headline
from edgeproof.report.sections.nodes import nodes
from edgeproof.report.sections.rerun import rerun
from edgeproof.report.sections.tested import tested

TITLE = "How robust is it?"
_SECTIONS = (headline, curves, tested, comparison, attacks, nodes, certificates, filters, rerun)
# In this order they become one script.
_SCRIPTS = ("svg.js", "marks.js", "lines.js", "bars.js", "tables.js", "nodes.js", "main.js")


def render(runs: Sequence[Run] | Run, *, title: str = TITLE, command: str = "") -> str:
    """Runs as one HTML page that needs nothing else: no network, no server, no other file.

    Args:
        runs: what was measured: one run, or several.
        title: of the page.
        command: what to type to get the page again; stands below the commands of the runs.

    >>> import edgeproof as ep, torch
    >>> data, nodes, model = ep.datasets.load("csbm"), torch.arange(50), ep.models.GCN(21, 2)
    >>> scores = ep.evaluate(model, data, nodes, [0.1], ["FGSM"])
    >>> page = render([Run.of("my GCN", model, data, nodes, evaluation=scores)])
    >>> page.startswith("<!doctype html>"), "http://" in page.replace("http://www.w3.org/2000/svg", "")
    (True, False)
    """
    found = [runs] if isinstance(runs, Run) else list(runs)
    if not found:
        raise ValueError("expected at least one run to report, got none")
    for one in found:
        if not isinstance(one, Run):
            raise TypeError(f"expected runs, of Run.of or of read, got {one!r}")
    page = Page(title, tuple(group(found)), command)
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
        nav=join(tag("li", {}, tag("a", {"href": f"#{one.id}"}, one.title)) for one in sections),
        sections=join(map(_section, sections)),
        version=__version__,
        charts=json_block(charts),
        script=script,
    )


def write(
    runs: Sequence[Run] | Run, path: str | Path = "report.html", *, title: str = TITLE, command: str = ""
) -> None:
    """Write the page of :func:`render`; the file appears whole or not at all.

    Args:
        runs: what was measured, one run or several: from :meth:`Run.of`, or from files with :func:`read`.
        path: where the page goes.
        title: of the page.
        command: what to type to get the page again.
    """
    path = Path(path)
    check_writable(path)
    # Names of files may hold bytes that are no text; they must not keep a report from being written.
    content = render(runs, title=title, command=command).encode("utf-8", "replace")
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _section(section: Section) -> Html:
    heading = tag("h2", {"id": f"{section.id}-title"}, section.title)
    return tag("section", {"id": section.id, "aria-labelledby": f"{section.id}-title"}, heading, section.body)


def _asset(name: str) -> str:
    return (files("edgeproof.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
