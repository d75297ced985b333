"""Text of others in tables that programs read: CSV, Markdown and LaTeX show it as it is, and run
nothing of it.
"""

from __future__ import annotations

import csv
import io
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from subquad.errors import escaped

_MARKDOWN = str.maketrans(
    {**{sign: f"\\{sign}" for sign in r"\`*_[]|~!"}, "&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
}
_LATEX |= {
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
}
_FORMULA = frozenset("=+-@\N{MINUS SIGN}")
"""What begins a formula, once it is written in ASCII's width."""


def one_line(text: object) -> str:
    """Text with escapes for what could steer a terminal or break a line; not cut."""
    return escaped(text, limit=sys.maxsize)


def in_markdown(text: object) -> str:
    """Text that Markdown shows as it is: links, emphasis, pipes and HTML do nothing."""
    return one_line(text).translate(_MARKDOWN)


def in_latex(text: object) -> str:
    """Text that LaTeX sets as it is, also behind a command that takes `*` or `[...]`, as a
    table's `\\\\` does.
    """
    latex = one_line(text).translate(str.maketrans(_LATEX))
    if latex.lstrip().startswith(("[", "*")):
        return f"{{}}{latex}"
    return latex


def as_csv(
    records: Iterable[Mapping[str, Any]], columns: Sequence[str], line_end: str = "\n"
) -> str:
    """RFC 4180; no text is a formula to a spreadsheet, and numbers stay numbers."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator=line_end)
    writer.writerow([_neutral(name) for name in columns])
    for record in records:
        writer.writerow([_neutral(record.get(name)) for name in columns])
    return stream.getvalue()


def _neutral(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula, behind an apostrophe."""
    if not isinstance(value, str):
        return value
    visible = (char for char in value if unicodedata.category(char)[0] not in "ZCM")
    first = unicodedata.normalize("NFKC", next(visible, " "))[0]
    return f"'{one_line(value)}" if first in _FORMULA else one_line(value)


def fill_template(
    package: str, template: str, shown: Callable[[object], str] | None = None, **values: Any
) -> str:
    """A Jinja template of a package, with values.

    Args:
        shown: makes every value but those marked as safe harmless; None: HTML's escapes.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FunctionLoader(lambda name: (files(package) / name).read_text(encoding="utf-8")),
        autoescape=shown is None,
        finalize=lambda value: value if isinstance(value, Markup) else (shown or one_line)(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
