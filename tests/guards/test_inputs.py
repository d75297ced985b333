"""A run of each reader is stopped, its files are changed, and it goes on: with the same samples to
the end, with other samples not at all.

What the files say before and after is asked of the reader itself.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from corruptions import LINES
from plain_readers import READERS, Samples
from reader_runs import LATE, experiment, seen
from small_run import run_here

from subquad.engine.parts import build_dataset
from subquad.errors import UserError
from subquad.experiment import Run, Study, load_study
from subquad.experiment.folder import reopen, start

SEED = 49
DRAWN = 20
BY_BYTES = ("image-folder", "imagenet")
"""What knows pictures by their files' bytes: other bytes are other data, whatever they show."""
STAGES = ("before step 1", "before the first save", "after a save")
"""Where a run is stopped."""


def touched(folder: Path, rng: random.Random) -> str:
    for path in folder.rglob("*"):
        os.utime(path, (rng.randrange(10**9),) * 2)
    return "touched"


def copied(folder: Path, rng: random.Random) -> str:
    shutil.copytree(folder, folder.with_name("copy"))
    shutil.rmtree(folder)
    folder.with_name("copy").rename(folder)
    return "copied"


def linked(folder: Path, rng: random.Random) -> str:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))
    return "linked"


HARMLESS = (touched, copied, linked)


def corrupted(name: str, folder: Path, rng: random.Random) -> str:
    """One change of one file, which may be of values, rows or labels."""
    reader = READERS[name]
    files = [path for path in folder.rglob("*") if path.is_file()]
    path = rng.choice(sorted(path for path in files if path.name.endswith(reader.kinds)))
    is_text = path.suffix not in (".png", ".jpg")
    kinds = [kind for kind in reader.corruptions if is_text or kind not in LINES]
    before = path.stat()
    done = rng.choice(kinds)(path, rng)
    if path.exists() and rng.random() < 0.5:  # as a copy that keeps times
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"{path.relative_to(folder)}: {done}"


def samples_of(name: str, run: Run) -> Samples | None:
    """What a reader gives, in its order; None where it refuses."""
    try:
        names = build_dataset(run).describe().class_names
        return {**seen(READERS[name], run), "classes": [names]}
    except UserError:
        return None


class Killed(Exception):
    """Ends a run as a kill does: nothing is saved."""


def stopping(stage: str) -> Callable[[], int]:
    """What asks a run to stop; it breaks down where nothing is to be saved."""

    def asked() -> int:
        if stage == "before the first save":
            raise Killed
        return 15

    return asked


def outcome(name: str, stage: str, change: Callable[[Path], str], root: Path) -> str:
    """What is wrong with how a run goes on after a change; "" where nothing is."""
    reader = READERS[name]
    folder = root / "data"
    folder.mkdir(parents=True)
    reader.write(folder)
    path = experiment(reader, folder, 0.5)
    study: Study = start(load_study(str(path), ["tracking.uri=off"]), root)
    (run,) = study.runs
    before = samples_of(name, run)
    with suppress(Killed):
        run_here(run, stopping(stage))
    if stage == "before step 1":
        shutil.rmtree(run.folder / "checkpoints", ignore_errors=True)
    done = change(folder)
    after = samples_of(name, run)
    try:
        (again,) = reopen(study.folder).runs
        status = run_here(again)
    except UserError as error:
        if "what it reads has changed" not in str(error):
            return "" if after is None else f"{done}: {error}"
        # bytes of a TEST that is not opened yet are all that is known of it
        by_bytes = reader.dataset in (*BY_BYTES, *LATE)
        is_harmless = done in {kind.__name__ for kind in HARMLESS}
        is_right = before != after or (by_bytes and not is_harmless)
        return "" if is_right else f"{done}: refused: {error}"
    return "" if before == after else f"{done}: went on ({status}) with other samples"


def wrong(name: str, count: int, seed: int, root: Path) -> list[str]:
    faults = []
    for number in range(count):
        rng = random.Random(f"{seed} {name} {number}")
        stage = rng.choice(STAGES)
        change = rng.choice((*HARMLESS, *[partial(corrupted, name)] * 3))
        fault = outcome(name, stage, partial(change, rng=rng), root / str(number))
        if fault:
            faults.append(f"{name} {number}, stopped {stage}: {fault}")
    return faults


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", READERS)
def test_a_stopped_run_goes_on_with_its_own_data_alone(name: str, tmp_path: Path):
    assert wrong(name, 2, SEED, tmp_path) == []


@pytest.mark.extended
@pytest.mark.parametrize("name", READERS)
def test_drawn_changes(name: str, guard_seed: int, guard_rows: int | None, tmp_path: Path):
    print(f"guard seed {guard_seed}")
    assert wrong(name, guard_rows or DRAWN, guard_seed, tmp_path) == []
