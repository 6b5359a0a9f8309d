"""Formulas as MathML, which browsers render without scripts, fonts or network.

Markdown syntax as on GitHub: ``$`x_i`$`` within a line, and a fenced block of language ``math``.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

_INLINE = r"(?<!`)\$`([^`]+)`\$(?!`)"  # not inside a code span
_BLOCK = re.compile(r"^(?P<indent> *)```math\n(?P<tex>.*?)\n(?P=indent)```$", re.MULTILINE | re.DOTALL)
# A command that latex2mathml lacks, and its output for unknown commands.
_ARG = re.compile(r"\\arg\b")
_UNKNOWN = re.compile(r">(\\[A-Za-z]+)<")
# Before code spans (190); before fences (25) but after whitespace normalization (30).
_INLINE_PRIORITY, _BLOCK_PRIORITY = 195, 27


def to_mathml(tex: str, *, block: bool = False) -> str:
    r"""Convert one formula to MathML.

    >>> to_mathml(r"\gamma_k").partition("<mrow>")[2]
    '<msub><mi>&#x003B3;</mi><mi>k</mi></msub></mrow></math>'
    """
    mathml: str = convert(
        _ARG.sub(r"\\operatorname{arg}", " ".join(tex.split())), display="block" if block else "inline"
    )
    unknown = _UNKNOWN.search(mathml)
    if unknown:
        raise ValueError(f"expected LaTeX supported by latex2mathml, got {unknown[1]} in {tex!r}")
    return f'<div class="formula">{mathml}</div>' if block else mathml


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Element | str, int, int]:
        return self.md.htmlStash.store(to_mathml(m.group(1))), m.start(0), m.end(0)


class _Block(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        def store(match: re.Match[str]) -> str:
            placeholder = self.md.htmlStash.store(to_mathml(match["tex"], block=True))
            return f"\n{match['indent']}{placeholder}\n"

        return _BLOCK.sub(store, "\n".join(lines)).split("\n")


class MathExtension(Extension):
    """Python-Markdown extension for inline and block formulas."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(_Inline(_INLINE, md), "mathml", _INLINE_PRIORITY)
        md.preprocessors.register(_Block(md), "mathml_block", _BLOCK_PRIORITY)
