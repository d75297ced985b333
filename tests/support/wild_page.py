"""docs/explanation/in-the-wild.md, made of the trials that are declared in `wild_trials`.

python tests/support/wild_page.py     # writes the page
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from wild_trial import Fault, Trial
from wild_trials import DATE, LEFT_OUT, TORCH, TRIALS, WRAPPERS

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/in-the-wild.md"
HEAD = """\
# The certificate in the wild

What [the certificate](../reference/certificate.md) says of {modules} modules of {packages}
published packages, which were written without subquad in mind. Each module is wrapped in at most
25 lines, beside a few short classes that wrappers share (`tests/support/wild_wrappers.py`): they
build it, hand it its mask, and claim for it what its arguments offer: a `causal` switch, a mask of
real tokens. Where a check fails, an experiment of a few lines without subquad shows the same on the
module as its package gives it.

All of this is of {date}, with torch {torch} on a CPU. The packages are installed from PyPI, in the
versions that are named here; others may differ. A failed check says that a module does not have
the property in the use that was tried. It says nothing about its use elsewhere: a module that
mixes padding is right where nothing is padded.

`pytest -m extended tests/integration/test_in_the_wild.py` repeats all of it, and the page is made
of what that test expects. These checks were left out: {left_out}.

## The experiments

Modules are 16 wide with 2 heads, and have the weights that their package draws. A figure without a
unit is a difference over the largest output.

| experiment | what it does |
|---|---|
"""


def page() -> str:
    """The page's text."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    left_out = "; ".join(f"`{check}`, {reason}" for check, reason in LEFT_OUT.items())
    packages = {trial.package for trial in TRIALS}
    yield HEAD.format(
        modules=len(TRIALS), packages=len(packages), date=DATE, torch=TORCH, left_out=left_out
    )
    used = [fault.experiment for trial in TRIALS for fault in trial.faults]
    for experiment in dict.fromkeys(used):
        does = " ".join((experiment.__doc__ or "").split())
        yield f"| {_words(experiment.__name__)} | {does} |\n"
    yield "\n## Modules that pass\n\n"
    yield "| module | in its own words | claimed here |\n|---|---|---|\n"
    for trial in TRIALS:
        if not trial.faults:
            yield f"| {_named(trial)} | {trial.words} | {_claims(trial)} |\n"
    yield "\n## Modules that fail a check\n"
    for trial in TRIALS:
        if trial.faults:
            yield f"\n### {trial.package} {trial.version}: {trial.name}\n\n"
            yield f"In its own words: {trial.words}. Claimed here: {_claims(trial)}."
            yield f"{' ' if trial.note else ''}{trial.note}\n\n"
            yield "| built | checks that fail | experiment | figure |\n|---|---|---|---|\n"
            yield from map(_row, trial.faults)


def _named(trial: Trial) -> str:
    return f"{trial.package} {trial.version}: {trial.name}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _row(fault: Fault) -> str:
    cells = (
        "causal" if fault.causal else "not causal",
        ", ".join(f"`{check}`" for check in fault.checks),
        _words(fault.experiment.__name__),
        f"{fault.figure:.2g}",
    )
    return f"| {' | '.join(cells)} |\n"


def _claims(trial: Trial) -> str:
    """The arguments of the wrapper's `Facts`."""
    facts = [
        call
        for call in ast.walk(wrapper(trial))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Facts"
    ]
    (claimed,) = facts
    claims = [f"`{word.arg}={ast.unparse(word.value)}`" for word in claimed.keywords]
    return ", ".join(claims) or "nothing beyond the contract"


def wrapper(trial: Trial) -> ast.ClassDef:
    """The wrapper's class."""
    tree = ast.parse(WRAPPERS.read_text(encoding="utf-8"))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    (found,) = [node for node in classes if node.name == trial.mixer]
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
