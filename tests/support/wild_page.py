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
published packages. Each is wrapped in at most 25 lines (`tests/support/wild_wrappers.py`), which
claim for it what its arguments offer. Where a check fails, an experiment of a few lines without
subquad shows the same on the module as its package gives it.

All of this is of {date}, torch {torch} on a CPU, packages from PyPI in these versions. A failed
check says that a module does not have the property in the use that was tried: one that mixes
padding is right where nothing is padded. `pytest -m extended tests/integration/test_in_the_wild.py`
repeats all of it. Left out: {left_out}.

Modules are 16 wide with 2 heads. A figure is a difference over the largest output, or what its
experiment says (`tests/support/wild_experiments.py`).
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
    yield "\n## Modules that pass\n\n"
    passed: dict[str, list[str]] = {}
    for trial in TRIALS:
        if not trial.faults:
            passed.setdefault(_claims(trial), []).append(_named(trial))
    for claims, modules in passed.items():
        yield f"- {claims}: {', '.join(modules)}\n"
    yield "\n## Modules that fail a check\n\n"
    yield "| module | claimed | checks that fail | experiment | figure |\n|---|---|---|---|---|\n"
    for trial in TRIALS:
        for number, fault in enumerate(trial.faults):
            told = (_named(trial), f"{_claims(trial)}. {trial.note}".strip())
            yield _row(told if number == 0 else ("", ""), fault)


def _named(trial: Trial) -> str:
    return f"{trial.package} {trial.version}: {trial.name}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _row(told: tuple[str, str], fault: Fault) -> str:
    checks = ", ".join(f"`{check}`" for check in fault.checks)
    cells = (
        *told,
        f"{checks}{' (causal)' if fault.causal else ''}",
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
