"""A row of settings, trained undisturbed and with kills, and compared tensor by tensor."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import states
import torch
import yaml
from engine_rows import RANKS, Row, Settings, Space
from ranks import Ended, Ranks
from result_file import read_result
from safetensors.numpy import load_file
from safetensors.torch import save_file

from subquad.data import NO_LABEL, TestKey
from subquad.engine import checkpoint, feed, loop, state
from subquad.engine.tensors import model_tensors
from subquad.errors import SubquadError, UserError
from subquad.experiment import Run, load_study
from subquad.experiment.folder import start
from subquad.record.metrics import read_attempts, read_records
from subquad.record.names import PREDICTIONS
from subquad.trained.model import Trained
from subquad.trained.verify import verify

SAME = {"fp64": 1e-7, "fp32": 2e-3, "bf16": 0.1, "fp16": 0.1}
"""How far numbers may be apart on other ranks, or when a trained model is scored again, by
precision.
"""


class Wrong(Exception):
    """Something that must be equal is not, or a process ended as it must not."""


class Refused(Exception):
    """subquad does not take a row."""


@dataclass(frozen=True)
class Guard:
    """Trains rows.

    Attributes:
        ranks: where.
        space: what a row means.
        plant: called in each rank of an attempt that will be killed, to plant a fault.
    """

    ranks: Ranks
    space: Space
    plant: Callable[[], None] | None = None

    def test(self, row: Row, folder: Path, seed: int) -> None:
        """Train a row to its end, train it with kills, and compare.

        Raises:
            Refused: subquad does not take it, in one line.
            Wrong: something differs.
        """
        generator = random.Random(seed)
        folder.mkdir()
        run = self._run(row, folder, seed % 1000)
        whole = self._trained(run)
        killed = self._run(row, folder, seed % 1000)
        saves = _saves(whole, row)
        after = _resources(row["ranks"] if row["going on"] == "same" else row["going on"])
        same = after == _resources(row["ranks"])
        self._killed(killed, _steps_of_kills(row["kill"], saves, generator))
        self._ended(self._go_on(_on(killed, after)), 0)
        _finished(killed.folder)
        _same_samples(whole.folder, killed.folder, not same and _may_stop_elsewhere(row))
        if same:
            _equal(whole.folder, killed.folder)
        else:
            _alike(whole.folder, killed.folder, row)
        self._scored(killed.folder, row)
        self._scored(whole.folder, row)

    def _run(self, row: Row, folder: Path, seed: int) -> Run:
        experiment = self.space.experiment(row, seed)
        path = folder / "experiment.yaml"
        path.write_text(yaml.safe_dump(experiment))
        try:
            if row["init"] == "file":
                without = {key: value for key, value in experiment.items() if key != "init"}
                (folder / "before.yaml").write_text(yaml.safe_dump(without))
                (other,) = load_study(str(folder / "before.yaml"), ["train.seed=4321"]).runs
                self._ended(
                    self.ranks.call(_write_weights, (other.as_values(), self.space.folder)), 0
                )
            (run,) = start(load_study(str(path), []), folder).runs
        except UserError as error:
            raise Refused(_one_line(error)) from error
        return run

    def _go_on(self, run: Run, fault: str = "") -> list[Ended]:
        number = len(read_attempts(run.folder))
        around = partial(_begin, run.folder, number, self.plant if fault else None)
        return self.ranks.train(run, run.experiment.resources.most, fault, around)

    def _trained(self, run: Run) -> Run:
        ended = self._go_on(run)
        for process in ended:
            if process.error and _is_refusal(process.error):
                raise Refused(_one_line(process.error))
        self._ended(ended, 0)
        _finished(run.folder)
        return run

    def _killed(self, run: Run, steps: list[int]) -> None:
        for step in steps:
            newest = max(states.steps(run.folder), default=0)
            self._ended(self._go_on(run, f"kill@step:{step - newest}"), -9)

    def _scored(self, folder: Path, row: Row) -> None:
        """`eval`, `predict` and `verify` say what the run has recorded."""
        ended = self.ranks.call(_scored_again, (folder,))
        self._ended(ended, 0)
        scores, answers, faults = ended[0].value
        if faults:
            raise Wrong(f"verify: {faults[0]}")
        test = (read_result(folder) or {})["test"]
        if len(answers) != test["samples"]:
            raise Wrong(f"predict: {len(answers)} answers to {test['samples']} samples")
        allowed = SAME[row["precision"]]
        exact = row["precision"] == "fp64"
        for name in test["metrics"] if exact else ["loss"]:
            recorded, again = test["metrics"][name], scores[name]
            if not abs(recorded - again) <= allowed * max(1.0, abs(recorded)):
                raise Wrong(f"eval: {name} is {again}, recorded is {recorded}")
        kept = load_file(folder / PREDICTIONS) if (folder / PREDICTIONS).exists() else {}
        if exact and "predicted" in kept and "class" in answers[0]:
            _same_classes(kept["predicted"], [answer["class"] for answer in answers])

    def _ended(self, ended: list[Ended], code: int) -> None:
        for process in ended:
            if process.code != code:
                raise Wrong(
                    f"a process ended with {process.code}, not {code}: "
                    f"{process.error}\n{process.trace}"
                )


def _is_refusal(error: str) -> bool:
    kinds = {kind.__name__ for kind in _below(UserError)}
    return error.partition(":")[0] in kinds


def _below(kind: type[SubquadError]) -> list[type[SubquadError]]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in _below(below))]


def _one_line(error: object) -> str:
    message = str(error)
    if "\n" in message or "Traceback" in message:
        raise Wrong(f"a refusal that is not one line: {message}")
    return message


def _resources(ranks: str) -> Settings:
    default = {"resources.workers": 1, "resources.strategy": "ddp"}
    return {**default, **RANKS[ranks]}


def _on(run: Run, resources: Settings) -> Run:
    named = {key.removeprefix("resources."): value for key, value in resources.items()}
    changed = run.experiment.resources.model_copy(update=named)
    return replace(run, experiment=run.experiment.model_copy(update={"resources": changed}))


def _begin(folder: Path, number: int, plant: Callable[[], None] | None) -> None:
    """In a rank: write down which samples each step sees.

    Compiled code waits for no C++ compiler, and loader processes are forks: else each row would
    take minutes. What the compiler makes and how loaders are spawned have tests of their own.
    """
    torch.compile = partial(torch.compile, backend="aot_eager")  # pyright: ignore[reportPrivateImportUsage]
    feed.DataLoader = partial(_forking_loader, feed.DataLoader)
    batches = loop.training_batches

    def noted(parts: Any, begin: int, workers: int) -> Any:
        path = folder / f"seen-{number}-{parts.group.rank}.jsonl"
        with path.open("w") as stream:
            for step, (micros, samples) in enumerate(batches(parts, begin, workers), begin + 1):
                identities = [
                    sample for micro in micros if micro.real for sample in _samples(micro.batch)
                ]
                stream.write(json.dumps([step, identities]) + "\n")
                stream.flush()
                yield micros, samples

    loop.training_batches = noted
    if plant:
        plant()


def _forking_loader(loader: Any, *arguments: Any, **more: Any) -> Any:
    return loader(*arguments, **{**more, "multiprocessing_context": "fork"})


def _samples(batch: Any) -> list[str]:
    """What each sample of a batch is, as a text."""
    tensors = [batch[name] for name in sorted(batch)]
    count = max(len(tensor) for tensor in tensors if tensor.ndim)
    rows = [tensor for tensor in tensors if tensor.ndim and len(tensor) == count]
    return [str([crc32(tensor[row].numpy().tobytes()) for tensor in rows]) for row in range(count)]


def _seen(folder: Path) -> dict[tuple[int, int], Counter[str]]:
    """The samples of each step of each attempt, over its ranks; of a rank that was killed the
    last line may be torn.
    """
    found: dict[tuple[int, int], Counter[str]] = {}
    for path in folder.glob("seen-*-*.jsonl"):
        number = int(path.stem.split("-")[1])
        for line in path.read_text().splitlines():
            step, samples = json.loads(line)
            found.setdefault((number, step), Counter()).update(samples)
    return found


def _is_compared(row: Row) -> bool:
    """Whether nothing random is drawn in each rank, so that other ranks give the same numbers up
    to rounding.
    """
    return row["dropout"] == "0.0" and row["mixer"] != "odd" and row["model"] != "picture"


def _may_stop_elsewhere(row: Row) -> bool:
    """Whether on other ranks training may end after another evaluation: early stopping looks at
    scores.
    """
    return not _is_compared(row) and row["patience"] != "None"


def _same_samples(whole: Path, killed: Path, may_stop_elsewhere: bool) -> None:
    expected, found = _seen(whole), _seen(killed)
    steps = {step for _, step in found}
    if may_stop_elsewhere:
        steps &= {step for _, step in expected}
        expected = {key: samples for key, samples in expected.items() if key[1] in steps}
        found = {key: samples for key, samples in found.items() if key[1] in steps}
    if steps != {step for _, step in expected}:
        raise Wrong(f"other steps were made: {sorted(steps)}")
    last = {}
    for number, step in found:
        last[step] = max(number, last.get(step, 0))
    for (number, step), samples in found.items():
        if number == last[step] and samples != expected[(0, step)]:
            raise Wrong(f"step {step} of attempt {number + 1} saw other samples")


def _finished(folder: Path) -> None:
    result = read_result(folder)
    if result is None or result["status"] != "finished":
        raise Wrong(f"{folder} did not finish: {result and result['reason']}")


def _saves(run: Run, row: Row) -> list[tuple[int, str]]:
    """Steps after which the run saved, and why."""
    records = list(read_records(run.folder))
    found = {record.step: "evaluation" for record in records if record.kind == "eval"}
    end = (read_result(run.folder) or {})["steps"]
    if row["plain saves"] != "None":
        every = int(row["plain saves"])
        for step in range(every, end + 1, every):
            found.setdefault(step, "plain save")
    found.setdefault(end, "end")
    return sorted(found.items())


def _steps_of_kills(kind: str, saves: list[tuple[int, str]], generator: random.Random) -> list[int]:
    """The steps before whose update each process is killed, drawn.

    Raises:
        Refused: the run has no such step, as it is too short.
    """
    begun = [(0, "begin"), *saves]
    spans = [
        (kind, before + 1, after) for (before, kind), (after, _) in zip(begun, saves, strict=False)
    ]
    word = {
        "after an evaluation": "evaluation",
        "after a plain save": "plain save",
        "before the first save": "begin",
    }
    fitting = [
        (first, last) for why, first, last in spans if kind == "twice in a row" or why == word[kind]
    ]
    if not fitting:
        raise Refused(f"guard: no step is {kind}: {saves}")
    first, last = generator.choice(fitting)
    return sorted(
        generator.randint(first, last) for _ in range(2 if kind == "twice in a row" else 1)
    )


def _equal(whole: Path, killed: Path) -> None:
    """Model, optimiser, generators, counters, result and predictions, bit for bit."""
    steps = states.steps(whole)
    if states.steps(killed) != steps:
        raise Wrong(f"other checkpoints: {states.steps(killed)}, not {steps}")
    names = {name for name in states.state(whole, steps[-1]) if name.startswith("optimizer:")}
    for step in steps:
        expected = states.state(whole, step)
        if missing := names - expected.keys():
            raise Wrong(f"step {step} of an undisturbed run lacks {min(missing)}")
        if wrong := states.unequal(states.state(killed, step), expected):
            raise Wrong(
                f"step {step}: {len(wrong)} of {len(expected)} tensors differ: "
                f"{', '.join(wrong[:5])}"
            )
        if states.numbers(killed, step) != states.numbers(whole, step):
            raise Wrong(f"step {step}: generators or counters differ")
    for key in ("best", "last", "test", "steps", "skipped_steps"):
        if repr((read_result(killed) or {})[key]) != repr((read_result(whole) or {})[key]):
            raise Wrong(f"result: {key} differs")
    if (killed / PREDICTIONS).exists() and (killed / PREDICTIONS).read_bytes() != (
        whole / PREDICTIONS
    ).read_bytes():
        raise Wrong("predictions differ")


def _alike(whole: Path, killed: Path, row: Row) -> None:
    """On other ranks: names, shapes, counters; and, without randomness, the values up to
    rounding.
    """
    result, expected = read_result(killed) or {}, read_result(whole) or {}
    compared = _is_compared(row)
    if not compared and result["steps"] != expected["steps"]:
        return  # early stopping looks at scores, which differ
    step = states.steps(whole)[-1]
    if states.steps(killed)[-1] != step:
        raise Wrong(f"the last checkpoint is of step {states.steps(killed)[-1]}, not {step}")
    mine, theirs = (
        {n: t for n, t in states.state(folder, step).items() if n[:4] != "rng:"}
        for folder in (killed, whole)
    )
    if mine.keys() != theirs.keys():
        raise Wrong(f"other tensors: {sorted(mine.keys() ^ theirs.keys())[:5]}")
    for name, tensor in theirs.items():
        if (mine[name].shape, mine[name].dtype) != (tensor.shape, tensor.dtype):
            raise Wrong(f"{name} is {mine[name].dtype} {tuple(mine[name].shape)}")
    if not compared:
        return
    losses = [states.losses(folder) for folder in (killed, whole)]
    apart = np.abs(losses[0] - losses[1]).max(initial=0.0)
    if apart > SAME[row["precision"]] * max(1.0, np.abs(losses[1]).max(initial=0.0)):
        raise Wrong(f"losses are {apart:.2g} apart on other ranks")
    if row["precision"] == "fp64":
        for name, tensor in theirs.items():
            if not torch.allclose(mine[name].double(), tensor.double(), rtol=1e-3, atol=1e-3):
                raise Wrong(
                    f"{name} is {(mine[name] - tensor).abs().max():.2g} apart on other ranks"
                )


def _same_classes(predicted: np.ndarray, answers: list[Any]) -> None:
    """Each class has one name. Answers may be names, predictions are numbers."""
    if isinstance(answers[0], list):
        answers = [name for row in answers for name in row]
        predicted = predicted.reshape(-1)
    named = zip(predicted.tolist(), answers, strict=True)
    pairs = {(number, answer) for number, answer in named if number != NO_LABEL}
    if len(pairs) != len({number for number, _ in pairs}):
        raise Wrong("predict: other classes than were recorded")


def _scored_again(rank: int, folder: Path) -> tuple[dict[str, float], list[Any], list[str]]:
    result = read_result(folder) or {}
    trained = Trained.of(folder, result["test"]["checkpoint"])
    split = trained.dataset.split("test", TestKey(trained.parts.run.dataset_label, "guard"))
    faults = [fault for found in verify(folder) for fault in found.faults]
    return trained.scores(split), list(trained.answers(split)), faults


def _write_weights(rank: int, plain: dict[str, Any], folder: Path) -> None:
    trained = Trained.before(Run.rebuild(plain))
    save_file(model_tensors(trained.parts.bare_model), folder / "weights.safetensors")


def lose_state() -> None:
    """The optimiser loses one tensor before it is saved."""
    taken = state.optimizer_tensors

    def losing(optimizer):
        found = taken(optimizer)
        # before the first step there is none
        found.pop(max((name for name in found if name.endswith("/exp_avg")), default=""), None)
        return found

    state.optimizer_tensors = losing


def empty_state() -> None:
    """One tensor of the optimiser's state is saved as zeros, which nothing else can see."""
    written = checkpoint.write

    def emptying(root, step, content, group):
        name = max(name for name in content.optimizer if name.endswith("/exp_avg"))
        optimizer = {**content.optimizer, name: content.optimizer[name] * 0}
        written(root, step, replace(content, optimizer=optimizer), group)

    checkpoint.write = emptying
