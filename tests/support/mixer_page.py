"""docs/reference/mixers/index.md, made of what the mixers say of themselves.

python tests/support/mixer_page.py     # writes the page
"""

from __future__ import annotations

from pathlib import Path

from subquad.plugin import MixerPlugin
from subquad.registry import find_plugins, resolve

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/mixers/index.md"
HEAD = """\
# Mixers

Each has a page with its paper, formulas, parameters and differences. `subquad list mixer` shows
those that are installed; `subquad show NAME` shows parameters and claims of one. The
[certificate](../certificate.md) tests what each claims. Fast forms equal the readable `naive.py`
beside them (`tests/unit/plugins/test_oracles.py`) and, where there is some, published code
(`tests/golden`).

- *grows*: the cost of a sequence by its length L.
- *causal*: whether it may stand in a decoder: always is, can be, or cannot.
- *cross*: whether it can look at another sequence.

With the defaults of all of them, outputs at real tokens do not depend on padding. An *attention
core* stands between four projections (`subquad.nn.AttentionMixer`), so a softmax model's weights
load into it. Ranks, windows and landmarks above the longest sequence are refused.

| name | what it is | grows | causal | cross |
|---|---|---|---|---|
"""
CAUSAL = {"always": "always", "optional": "can be", "never": "–"}


def page() -> str:
    """The page's text."""
    return HEAD + "".join(
        row(found.name)
        for found in sorted(find_plugins("mixer"), key=lambda found: found.name)
        if found.is_built_in
    )


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
        CAUSAL[facts.causal],
        "yes" if facts.cross else "–",
    )
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
