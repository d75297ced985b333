"""What commands cost as a study grows: CPU seconds and peak memory, each in its own process.

    python benchmarks/growth.py [study] [cells] [tpe] [--sizes 30 300 1000 3000] [--folder DIR]

study: `report`, `verify` and `resume` of a finished study. Ten tiny runs are trained; the others
are cells of a study that is begun as any is, each with the files of a trained run of its mixer and
data, and a result over them: `verify` accepts every one. cells: `train --dry-run` of studies that
are not begun, and the start of the largest until its first step; then, run after run, what memory
the driver has. tpe: the suggestions of a search against Optuna's own sampler.

An exponent is that of what is added to the smallest size, over the last sizes: 1 is linear. A busy
machine takes longer and not more CPU seconds.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

SMALL = """
name: small
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 16, num_heads: 2, head: last}}
train: {epochs: null, steps: 4, eval_every_epochs: null, log_every: 1}
tracking: {uri: off}
matrix:
  dataset:
    - {name: recall, label: four, params: {num_pairs: 4}}
    - {name: recall, label: three, params: {num_pairs: 3}}
  mixer: [agf, softmax, identity, linear, fourier]
  seed: SEEDS
"""
RECALL = "{num_keys: 6, num_values: 5, train_size: 203, validation_size: 40, test_size: 60"
ROWS = 10
"""Mixers by data sets of that study; the rest are seeds."""
BARS = {"report": 9.0, "verify": 15.0, "resume": 15.0, "exponent": 1.1, "tpe": 1.5, "start": 60.0}
SPACE = """
dims: {train.lr: {loguniform: [1e-4, 1e-1]}, train.weight_decay: {uniform: [0, 1]},
  mixer.params.order: {int: [2, 6]}}
"""


def write_study(path: Path, runs: int) -> Path:
    """An experiment file of so many runs."""
    seeds = list(range(max(1, runs // ROWS)))
    text = SMALL.replace("{num_pairs", f"{RECALL}, num_pairs").replace("SEEDS", str(seeds))
    path.write_text(text)
    return path


def words(*command: Any) -> list[str]:
    return [sys.executable, "-m", "subquad.cli.main", *map(str, command)]


def compiled(root: Path) -> dict[str, str]:
    """The environment, in which Python keeps what it compiles: as an installed package has it."""
    return {
        **{name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(root.parent / "compiled"),
    }


def measured(root: Path, *command: Any) -> tuple[float, float]:
    """CPU seconds and peak memory (MB) of a command, with the processes that it waited for."""
    with open(root / "printed", "wb") as printed:
        process = subprocess.Popen(
            words(*command), cwd=root, stdout=printed, stderr=printed, env=compiled(root)
        )
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: {(root / 'printed').read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def trained(root: Path) -> Path:
    """The folder of a study that is trained here, one run of each row."""
    write_study(root / "small.yaml", ROWS)
    measured(root, "train", "small.yaml", "--local", "--jobs", 1)
    (folder,) = root.glob("runs/small/*")
    return folder


def cloned(original: Path, path: Path, root: Path) -> Path:
    """A finished study as `path` asks for it, of the files of a trained one."""
    from subquad.experiment import load_study
    from subquad.experiment.folder import start
    from subquad.record.files import read_object
    from subquad.record.integrity import write_result
    from subquad.record.names import CELLS, CHECKPOINTS, EXPERIMENT, IDENTITY, MANIFEST, RESULT

    study = start(load_study(str(path)), root)
    own = shutil.ignore_patterns(EXPERIMENT, IDENTITY, RESULT)
    for run in study.runs:
        labels = {**run.labels, "seed": "seed0"}
        source = original / CELLS / "-".join(labels.values())
        shutil.copytree(source, run.folder, ignore=own, dirs_exist_ok=True)
        result = {**read_object(source / RESULT), **run.names, "experiment": run.digest}
        write_result(run.folder, result, *run.folder.glob(f"{CHECKPOINTS}/*/{MANIFEST}"))
    return study.folder


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """That of the growth between the last two sizes, without what the smallest one takes."""
    if len(sizes) < 3:
        return math.nan
    added = [max(each - seconds[0], 1e-3) for each in seconds[-2:]]
    more = [size - sizes[0] for size in sizes[-2:]]
    return math.log(added[1] / added[0]) / math.log(more[1] / more[0])


def line(what: str, size: Any, found: str, bar: str = "") -> str:
    return f"{what:24}{size!s:>9}  {found:32}{bar}"


def grown(
    what: str,
    given: Mapping[int, Any],
    measure: Callable[[Any], tuple[float, float]],
    bar: float = 0,
) -> Iterator[str]:
    """A line for each size, and one for the exponent."""
    sizes = [*given]
    seconds: list[float] = []
    for size in sizes:
        used, memory = measure(given[size])
        seconds.append(used)
        is_last = bool(bar) and size == sizes[-1]
        told = f"<= {bar:g} s at 3,000" if is_last else ""
        yield line(what, size, f"{used:.1f} s of CPU, {memory:.0f} MB", told)
    found = exponent(sizes, seconds)
    yield line(what, "exponent", f"{found:.2f}", f"<= {BARS['exponent']}")


def of_studies(root: Path, sizes: Sequence[int]) -> Iterator[str]:
    original = trained(root)
    folders = {
        size: cloned(original, write_study(root / f"study{size}.yaml", size), root)
        for size in sizes
    }
    for verb, *more in (("verify",), ("report",), ("resume", "--local")):
        command = partial(measured, root, verb, *more)
        command(original)  # which compiles what it imports
        yield from grown(verb, folders, command, BARS[verb])


def of_cells(root: Path, sizes: Sequence[int], followed: int) -> Iterator[str]:
    files = {size: write_study(root / f"cells{size}.yaml", size) for size in sizes}
    command = partial(measured, root, "train", "--dry-run", "--local")
    command(files[sizes[0]])
    yield from grown("train --dry-run", files, command)
    yield from started(root, files[sizes[-1]], sizes[-1], followed)


def started(root: Path, path: Path, size: int, followed: int) -> Iterator[str]:
    """CPU seconds until the first step of a study, and the driver's memory while it goes on."""
    with open(root / "printed", "wb") as printed:
        process = subprocess.Popen(
            words("train", path.name, "--local", "--root", root / "begun", "--jobs", 2),
            cwd=root,
            stdout=printed,
            stderr=printed,
            env=compiled(root),
        )
    about = Path(f"/proc/{process.pid}")
    results = 0
    begun = None
    memory: list[float] = []
    while process.poll() is None and results < followed:
        time.sleep(0.2)
        fields = (about / "stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        if not memory:
            begun = next((root / "begun" / "runs").glob("*/*/cells/*/attempts.jsonl"), None)
        if begun:
            results = sum(1 for _ in begun.parents[1].glob("*/result.json"))
            own = int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            if not memory:
                told = f"<= {BARS['start']:g} s at 10,000"
                yield line("train, to the first step", size, f"{used:.1f} s of CPU", told)
            memory.append(own)
    process.send_signal(signal.SIGTERM)
    process.wait()
    if not memory:
        raise SystemExit((root / "printed").read_text()[-2000:])
    shown = f"{memory[0]:.0f} to {memory[-1]:.0f} MB in {results} runs"
    yield line("driver's memory", size, shown, "flat")


def of_tpe(root: Path, trials: int) -> Iterator[str]:
    from subquad.experiment import load_study
    from subquad.search.search import plan_search
    from subquad.search.settings import Settings
    from subquad.search.trial import Evaluation, Trial

    os.chdir(root)
    Path("space.yaml").write_text(SPACE)
    path = write_study(root / "one.yaml", ROWS)
    chosen = ["matrix.mixer=[agf]", "matrix.dataset=[four]"]
    settings = Settings("./space.yaml", sampler="tpe", budget=f"{trials}-trials")
    search = plan_search(load_study(str(path), chosen), settings)
    (candidate,) = search.candidates
    sampler = search.sampler(candidate)
    folder = root / "search"
    folder.mkdir()
    known = search.trials(folder)[candidate.label]
    ours: list[float] = []
    for number in range(trials):
        start = time.process_time()
        point = known.ask(sampler)
        ours.append(time.process_time() - start)
        assert point is not None
        best = Evaluation(step=4, value=_value(*point.values()))
        facts = {"candidate": candidate.label, "number": number, "point": point}
        known.record(Trial(**facts, state="finished", steps=4, best=best))
    theirs = _of_optuna(trials)
    for many in (trials // 4, trials):
        taken = [sum(each[:many]) for each in (ours, theirs)]
        found = f"{taken[0]:.1f} s, Optuna alone {taken[1]:.1f} s: {taken[0] / taken[1]:.2f}"
        yield line("tpe, all suggestions", many, found, f"<= {BARS['tpe']} times at 2,000")


def _value(*point: Any) -> float:
    lr, decay, order = point
    return -((math.log10(lr) + 2.5) ** 2) - (decay - 0.3) ** 2 - 0.05 * (order - 4) ** 2


def _of_optuna(trials: int) -> list[float]:
    """Seconds of each suggestion of the sampler that the search asks."""
    import optuna

    from subquad.search.journal import quiet
    from subquad.search.sampler import MODELS

    taken: list[float] = []
    with quiet():
        study = optuna.create_study(direction="maximize", sampler=MODELS["tpe"](seed=0))
        for _ in range(trials):
            start = time.process_time()
            trial = study.ask()
            point = (
                trial.suggest_float("lr", 1e-4, 1e-1, log=True),
                trial.suggest_float("decay", 0, 1),
                trial.suggest_int("order", 2, 6),
            )
            taken.append(time.process_time() - start)
            study.tell(trial, _value(*point))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="study, cells, tpe; default: all")
    parser.add_argument("--sizes", type=int, nargs="+", default=[30, 300, 1000, 3000])
    parser.add_argument("--cells", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--followed", type=int, default=100, help="runs after the first step")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help="keep the folders there; default: none is kept")
    given = parser.parse_args()
    parts: dict[str, Callable[[Path], Iterator[str]]] = {
        "study": lambda root: of_studies(root, given.sizes),
        "cells": lambda root: of_cells(root, given.cells, given.followed),
        "tpe": lambda root: of_tpe(root, given.trials),
    }
    if unknown := set(given.parts) - parts.keys():
        parser.error(f"no part {', '.join(unknown)}")
    with tempfile.TemporaryDirectory(prefix="subquad-growth-") as temporary:
        for name in given.parts or parts:
            root = (given.folder or Path(temporary)).resolve() / name
            root.mkdir(parents=True)
            for text in parts[name](root):
                print(text, flush=True)


if __name__ == "__main__":
    main()
