"""Searchable tables: a paragraph that consists of a link to a CSV file becomes a table with search and sorting.

Browsers do not let a page read a CSV file from disk, so every CSV file gets a script with the same data beside it.
"""

from __future__ import annotations

import csv
import json
import posixpath
import re
from pathlib import PurePosixPath

SCRIPT = "tables.js"
_PARAGRAPH = re.compile(r'<p>(?P<link><a href="(?P<path>[^":?#]+\.csv)">[^<]*</a>)</p>')


def name_of(path: str) -> str:
    """Return the name of a table, the file's name without its suffix.

    >>> name_of("tables/cells.csv")
    'cells'
    """
    return PurePosixPath(path).stem


def data_script(path: str, text: str) -> str:
    """Return a script that shows the content of a CSV file.

    >>> data_script("a.csv", "graph,model\\ncora,GCN\\n")
    'edgeproofTable("a", [\\n["graph", "model"],\\n["cora", "GCN"]\\n]);\\n'
    """
    lines = (json.dumps(line, ensure_ascii=False) for line in csv.reader(text.splitlines()))
    return f"edgeproofTable({json.dumps(name_of(path))}, [\n" + ",\n".join(lines) + "\n]);\n"


def with_tables(page: str, root: str = ".") -> str:
    """Return the HTML of a page with tables in place of paragraphs that link to a CSV file.

    Args:
        page: HTML of a page.
        root: Path from the page to the root of the site.

    >>> print(with_tables('<p><a href="a.csv">Every cell</a></p>'))
    <div class="data-table" data-table="a"><p><a href="a.csv">Every cell</a></p></div>
    <script src="./tables.js"></script>
    <script src="a.csv.js"></script>
    """
    found = [match["path"] for match in _PARAGRAPH.finditer(page)]
    if not found:
        return page
    page = _PARAGRAPH.sub(
        lambda match: f'<div class="data-table" data-table="{name_of(match["path"])}"><p>{match["link"]}</p></div>',
        page,
    )
    scripts = [posixpath.join(root, SCRIPT), *(f"{path}.js" for path in found)]
    return "\n".join([page, *(f'<script src="{script}"></script>' for script in scripts)])
