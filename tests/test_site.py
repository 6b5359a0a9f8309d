"""Documentation site: navigation, no external resources, and conversion of docstrings to Markdown.

``make docs`` checks that the site builds without warnings.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
import pytest
import site_docstrings
import site_hooks
import yaml
from markdown import Markdown
from site_math import MathExtension, to_mathml

from edgeproof.cli.app import COMMANDS
from edgeproof.cli.reproduce import COMMANDS as REPRODUCE_COMMANDS

ROOT = Path(__file__).resolve().parent.parent
SETTINGS: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def listed(nav: Any) -> list[str]:
    """Return the pages of a navigation tree in order."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    return [page for entry in entries for page in listed(entry)]


class TestNavigation:
    def test_navigation_lists_every_page_once(self) -> None:
        pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
        assert sorted(listed(SETTINGS["nav"])) == sorted([*pages, *site_hooks.GENERATED])

    def test_generated_pages_do_not_exist_as_files(self) -> None:
        assert not [page for page in site_hooks.GENERATED if (ROOT / "docs" / page).exists()]

    def test_readme_links_resolve_to_pages(self) -> None:
        text = site_hooks.from_root((ROOT / "README.md").read_text(encoding="utf-8"))
        targets = {target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)}
        targets -= {target for target in targets if "://" in target}
        pictures = {target for target in targets if (ROOT / "docs" / target).suffix == ".png"}
        assert targets - pictures <= set(listed(SETTINGS["nav"]))
        for picture in pictures:
            assert (ROOT / "docs" / picture).stat().st_size < 200_000

    def test_public_modules_have_reference_pages(self) -> None:
        pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "reference").glob("*.md"))
        documented = set(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
        public = ["datasets", "splits", "models", "attacks", "budget", "training", "evaluation", "certificates"]
        assert {f"edgeproof.{name}" for name in [*public, "propagation", "report", "losses"]} <= documented


def test_faq_links_every_warning() -> None:
    faq, warnings_page = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("faq.md", "warnings.md"))
    linked = re.findall(r"^- \[(EP\d+): .+\]\(warnings\.md#(ep\d+)\)$", site_hooks.with_warnings(faq), re.MULTILINE)
    codes = re.findall(r"^## (EP\d+):", warnings_page, re.MULTILINE)
    assert len(codes) > 20
    assert linked == [(code, code.lower()) for code in codes]


class TestExternalResources:
    def test_configuration_uses_no_external_resources(self) -> None:
        assert SETTINGS["theme"]["font"] is False
        assert "http" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
        assert "extra_javascript" not in SETTINGS
        assert "analytics" not in SETTINGS["extra"]

    def test_style_sheets_import_nothing(self) -> None:
        for name in SETTINGS["extra_css"]:
            assert not re.search(r"url\(|@import", (ROOT / "docs" / name).read_text(encoding="utf-8"))

    def test_pages_load_no_external_resources(self) -> None:
        for path in (ROOT / "docs").rglob("*.md"):
            assert not re.search(r"<(script|link|img|iframe)\b|!\[[^]]*\]\(http", path.read_text(encoding="utf-8")), (
                path
            )


KNOWN = {"Pairs": "edgeproof.propagation.pairs.Pairs", "run": "a.Attack.run"}


def convert(text: str) -> str:
    return site_docstrings.to_markdown(text, lambda name: name if "." in name else KNOWN.get(name))


class TestDocstrings:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("as :math:`x_i`,", "as $`x_i`$,"),
            ("over :math:`a +\n    b` lines", "over $`a + b`$ lines"),
            ("``code`` stays", "``code`` stays"),
            (":class:`~a.b.C`", '<autoref identifier="a.b.C" optional><code>C</code></autoref>'),
            (":mod:`a.b`", '<autoref identifier="a.b" optional><code>a.b</code></autoref>'),
            (":meth:`C.f <a.C.f>`", '<autoref identifier="a.C.f" optional><code>C.f</code></autoref>'),
            (":meth:`run`", '<autoref identifier="a.Attack.run" optional><code>run</code></autoref>'),
            (":data:`SLACK`", "`SLACK`"),
        ],
    )
    def test_roles(self, before: str, after: str) -> None:
        assert convert(before) == after

    def test_math_block(self) -> None:
        text = "Before\n\n.. math::\n    a = b, \\qquad\n    c = d.\n\nAfter :math:`x`."
        assert convert(text) == "Before\n\n```math\na = b, \\qquad\nc = d.\n```\n\nAfter $`x`$."

    def test_indented_math_block(self) -> None:
        assert convert("    .. math::\n        a\n\n    on") == "    ```math\n    a\n    ```\n\n    on"

    def test_examples_are_not_converted(self) -> None:
        text = "One.\n\n>>> f(':math:`x`')\n1\n>>> g()\n\nTwo."
        assert convert(text) == "One.\n\n```pycon\n>>> f(':math:`x`')\n1\n>>> g()\n```\n\nTwo."

    def test_references_resolve_in_their_scope(self) -> None:
        with griffe.temporary_visited_package(
            "shop",
            {
                "__init__.py": "from shop.a import f\nclass C:\n    def g(self): ...\n    def h(self): ...",
                "a.py": "def f(): ...",
            },
        ) as package:
            resolve = site_docstrings.resolver(package["C.g"])
            assert resolve("h") == "shop.C.h"
            assert resolve("C.h") == "shop.C.h"
            assert resolve("f") == "shop.a.f"
            assert resolve("torch.Tensor") == "torch.Tensor"
            assert resolve("nothing") is None

    def test_named_tuple_has_constructor_parameters(self) -> None:
        code = "from typing import NamedTuple\nclass Row(NamedTuple):\n    name: str\n    size: int = 3\n"
        extensions = griffe.load_extensions(site_docstrings.RestructuredText)
        with griffe.temporary_visited_package("shop", {"__init__.py": code}, extensions=extensions) as package:
            parameters = [(parameter.name, parameter.default) for parameter in package["Row"].parameters]
            assert parameters[1:] == [("name", None), ("size", "3")]

    def test_all_docstrings_convert(self) -> None:
        extensions = griffe.load_extensions(site_docstrings.RestructuredText)
        package = griffe.load("edgeproof", search_paths=[ROOT / "src"], extensions=extensions)
        markdown, found = Markdown(extensions=[MathExtension(), "fenced_code"]), 0
        todo: list[Any] = [package]
        while todo:
            item = todo.pop()
            todo += [member for member in item.members.values() if not member.is_alias]
            if item.docstring is None:
                continue
            text = re.sub(r"```pycon\n.*?```", "", item.docstring.value, flags=re.DOTALL)
            assert not re.search(r":[a-z]+:`|^\s*\.\. [a-z]+::|^\s*>>>", text, re.MULTILINE), item.path
            found += markdown.reset().convert(text).count("<math")  # raises for a formula without a MathML form
        assert found > 100


class TestFormulas:
    def test_inline_formula(self) -> None:
        page = Markdown(extensions=[MathExtension()]).convert("so $`x_i * y_i`$, `code` and $5.")
        assert page.count("<math") == page.count("</math>") == 1
        assert "<code>code</code> and $5." in page
        assert "<em>" not in page

    def test_escaped_formula_is_shown_as_code(self) -> None:
        page = Markdown(extensions=[MathExtension()]).convert("write ``$`x_i`$`` for it")
        assert page == "<p>write <code>$`x_i`$</code> for it</p>"

    def test_block_formula(self) -> None:
        page = Markdown(extensions=[MathExtension()]).convert("Before\n\n```math\na \\le b\n```\n\nafter")
        assert '<div class="formula"><math' in page
        assert 'display="block"' in page
        assert "<p>after</p>" in page

    def test_unknown_latex_command_raises(self) -> None:
        with pytest.raises(ValueError, match=r"got \\nosuch in"):
            to_mathml(r"\nosuch{x}")


def test_command_line_page_documents_every_command() -> None:
    page = site_hooks.command_line()
    for name in [*COMMANDS, *(f"reproduce {name}" for name in REPRODUCE_COMMANDS)]:
        assert f"\n## edgeproof {name}\n" in page
    assert "| `--dataset` |" in page
    assert "[bold]" not in page
