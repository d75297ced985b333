"""What the documentation site makes of folders and of what mixers say of themselves; mkdocs.yml
names this file among its hooks.

In the navigation a folder, `reference/mixers/`, stands for its pages. The page of mixers gets the
table of all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from built_in import abouts

from subquad.plugin import MixerPlugin
from subquad.registry import resolve
from subquad_check.subject import check_subjects

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEAD = """
| name | what it is | grows | causal | cross | GPU kernel |
|---|---|---|---|---|---|
"""
CAUSAL = {"always": "always", "optional": "can be"}


def on_config(config: Any) -> None:
    """mkdocs calls it with what mkdocs.yml says."""
    config["nav"] = whole(config["nav"])


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """mkdocs calls it with the text of each page."""
    return markdown + table() if page.file.src_uri == "reference/mixers/index.md" else markdown


def whole(entries: list[Any]) -> list[Any]:
    """A navigation with the pages of each folder, its index first."""
    found: list[Any] = []
    for entry in entries:
        if isinstance(entry, dict):
            found += [
                {title: whole(below) if isinstance(below, list) else below}
                for title, below in entry.items()
            ]
        elif entry.endswith("/"):
            pages = sorted(
                (DOCS / entry).glob("*.md"), key=lambda page: (page.stem != "index", page.stem)
            )
            found += [page.relative_to(DOCS).as_posix() for page in pages]
        else:
            found.append(entry)
    return found


def table() -> str:
    """Every mixer, a line each."""
    return HEAD + "".join(map(row, sorted(abouts())))


def row(name: str) -> str:
    """One mixer's line."""
    plugin = resolve("mixer", f"subquad:{name}").plugin
    assert isinstance(plugin, MixerPlugin)
    facts = plugin.facts_of(plugin.config())
    assert facts.padding_invariant, f"{name}: the page says otherwise"
    cells = (
        f"[`{name}`]({name}.md)",
        plugin.summary,
        facts.complexity or "not claimed",
        CAUSAL.get(facts.causal) or causal_ways(name),
        "yes" if facts.cross else "–",
        kernel(name),
    )
    return f"| {' | '.join(cells)} |\n"


def causal_ways(name: str) -> str:
    """The parameters with which a mixer is causal that is not so by default."""
    subjects = check_subjects(f"subquad:{name}")
    variants = [subject.variant for subject in subjects if subject.causal]
    return f"variant {', '.join(variants)}" if variants else "–"


def kernel(name: str) -> str:
    """In what its kernels are written."""
    about = abouts()[name]
    words = ["Triton"] if "triton" in about.first.values() else []
    words += ["[fla](../kernels.md)"] if about.fla else []
    return ", ".join(words) or "–"
