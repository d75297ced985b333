"""Text of others in tables that programs read: CSV, Markdown and LaTeX show it as it is, and run
nothing of it.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from subquad.errors import escaped


def _escapes(escaped_signs: str, others: Mapping[str, str]) -> dict[int, str]:
    """For `str.translate`: a backslash before each of these signs, and what stands for others."""
    return str.maketrans({**{sign: f"\\{sign}" for sign in escaped_signs}, **others})


_MARKDOWN = _escapes(r"\`*_[]|~!", {"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_LATEX = _escapes(
    "&%$#_{}",
    {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "≈": r"$\approx$",
        "†": r"$\dagger$",
        "<": "$<$",
        ">": "$>$",
        "|": "$|$",
        "\u200b": r"\hspace{0pt}",
    },
)
_MINUS = re.compile(r"(?<![\w.)])-(?=\d)")
_UNBROKEN = re.compile(r"\S{30}")
"""After so many signs TeX may begin a new line, wherever that is."""
_IN_FONTS = frozenset(map(chr, [*range(32, 127), *range(0xC0, 0x100), ord("…"), *_LATEX]))
"""Signs that LaTeX sets without further packages."""
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
    table's `\\\\` does. Minus signs are true ones; what TeX's fonts lack is shown by its number.
    """
    signs = _UNBROKEN.sub("\\g<0>\u200b", _MINUS.sub("−", one_line(text)))
    shown = "".join(sign if sign in _IN_FONTS else f"\\u{ord(sign):04x}" for sign in signs)
    latex = shown.translate(_LATEX)
    if latex.lstrip().startswith(("[", "*")):
        return "{}" + latex
    return latex


def as_csv(
    records: Iterable[Mapping[str, Any]], columns: Sequence[str], line_end: str = "\n"
) -> str:
    """RFC 4180; no text is a formula to a spreadsheet, and numbers stay numbers."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator=line_end)
    writer.writerow(map(_neutral, columns))
    for record in records:
        writer.writerow(map(_neutral, map(record.get, columns)))
    return stream.getvalue()


def _neutral(value: Any) -> Any:
    """Text that a spreadsheet would run as a formula, behind an apostrophe."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    for character in value:
        if unicodedata.category(character)[0] in "ZCM":  # nothing to see
            continue
        return f"'{text}" if unicodedata.normalize("NFKC", character)[0] in _FORMULA else text
    return text


def fill_template(
    package: str, template: str, shown: Callable[[object], str] | None = None, **values: Any
) -> str:
    """A Jinja template of a package, with values.

    Args:
        shown: makes every value but those marked as safe harmless; None: HTML's escapes.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    harmless = shown or one_line
    environment = Environment(
        loader=FunctionLoader(lambda name: (files(package) / name).read_text(encoding="utf-8")),
        autoescape=shown is None,
        finalize=lambda value: value if isinstance(value, Markup) else harmless(value),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(**values)
