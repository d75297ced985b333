"""Any file of a folder may be damaged in any way: one clear line, or healed, and never a wrong
number unmarked.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from damage import DAMAGES, Judge, make_folders


def judged(root: Path, kinds: tuple[str, ...], count: int) -> list[str]:
    """What was wrong with the answers after so many damages, each to one file of one folder."""
    rng, found = random.Random(0), list[str]()
    judges = {
        kind: Judge(folder, root / "work") for kind, folder in make_folders(root, kinds).items()
    }
    for seed in range(count):
        kind, damage = rng.choice(sorted(judges)), rng.choice(sorted(DAMAGES))
        names = sorted({path.name for path in judges[kind].files})
        # each name as often as others: most files are those of checkpoints
        name = rng.choice(names)
        path = rng.choice([file for file in judges[kind].files if file.name == name])
        found += [
            f"{seed}: {kind}: {path}: {damage}: {fault}"
            for fault in judges[kind].faults(path, damage, seed)
        ]
    return found


def test_a_few_damages_of_a_run_and_of_a_study(tmp_path: Path):
    assert judged(tmp_path, ("run", "study"), 4) == []


@pytest.mark.extended
def test_three_hundred_damages_of_runs_studies_and_searches(tmp_path: Path):
    assert judged(tmp_path, ("run", "study", "search"), 300) == []
