"""Each reader of a user's own data meets drawn corruptions of good files, and answers for all it
reads.

What it gives must be what the files say by an oracle that reads them plainly (`plain_readers`), or
what it gave before; or it refuses, in one line that names the place. Training and `subquad data
show` must agree.
"""

from __future__ import annotations

import contextlib
import io
import random
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import entry_points
from itertools import zip_longest
from pathlib import Path

import pytest
from corruptions import LINES, column, hidden
from mutated import mutate
from plain_readers import BAD, READERS, Reader, Samples, Unreadable
from reader_runs import LATE, experiment, seen
from small_run import SMALL, only_run

from subquad.cli.main import main
from subquad.errors import DataError, UserError
from subquad.experiment import Study, load_study
from subquad.preparation.preflight import check_parts
from subquad.tracking.mirror import about

SEED = 20_351_600
"""Of what CI draws."""

DRAWN = 50
"""Corruptions for each reader, in the extended tier."""

COPIES = re.compile(
    r"dataset: [\d,]+ of [\d,]+ (TEST|validation) samples are exact copies of training samples"
)


@dataclass(frozen=True)
class Verdict:
    """What became of one corruption.

    Attributes:
        kind: "equal" to the good data, valid "other" data, "told" (samples that are marked as
            unreadable), "refused", or "wrong".
        said: what was done to the files, and what the reader said.
    """

    kind: str
    said: str


def by_training(path: Path) -> tuple[str, Study | None]:
    """What training says before it begins, "" where nothing; and the study."""
    study = load_study(str(path))
    try:
        check_parts(study)
    except UserError as error:
        return str(error), None
    return "", study


def by_show(path: Path) -> tuple[str, str]:
    """What `subquad data show` refuses with, "" where it does not, and what it prints."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["data", "show", str(path), "--samples", "1", "--out", str(path.parent)])
    errors = err.getvalue()
    assert code in (0, 2), errors
    assert bool(errors) == (code == 2), errors
    assert errors.count("\n") == (code == 2), errors
    return errors.removeprefix("subquad: ").rstrip("\n"), out.getvalue()


def alike(first: Samples | None, second: Samples | None) -> bool:
    """The same samples, in any order."""
    if first is None or second is None:
        return False
    return all(Counter(first[part]) == Counter(second[part]) for part in ("trainval", "test"))


@dataclass(frozen=True)
class Change:
    """What was corrupted.

    Attributes:
        path: the file.
        lines: numbers of the lines that are not what they were.
    """

    path: Path
    lines: frozenset[int] = frozenset()


def judge(reader: Reader, folder: Path, good: Samples, changed: Change, max_bad: float) -> Verdict:
    """Hold what training, `data show` and the data say of corrupted files against each other and
    the oracle.
    """
    path = experiment(reader, folder, max_bad)
    refusal, study = by_training(path)
    shown, printed = by_show(path)
    if refusal != shown:
        return Verdict("wrong", f"training says {refusal!r}, data show says {shown!r}")
    plain, broken = None, None
    try:
        plain = reader.oracle(folder)
    except Unreadable as error:
        broken = error
    if study is None:
        return refused(refusal, folder, changed, broken)
    try:
        found = seen(reader, study.runs[0])
    except DataError as error:
        late = reader.dataset in LATE and "TEST" in printed
        return (
            refused(str(error), folder, changed, broken)
            if late
            else Verdict("wrong", f"too late: {error}")
        )
    if alike(found, plain):
        if any(sample[0] == BAD for part in found.values() for sample in part):
            return Verdict("told", "marked as unreadable")
        return Verdict("equal" if alike(found, good) else "other", "")
    if alike(found, good):
        return Verdict("equal", "")
    return Verdict("wrong", f"read as neither the good data nor what the files say ({broken})")


def refused(message: str, folder: Path, changed: Change, broken: Unreadable | None) -> Verdict:
    """A refusal must name the file or a folder around it, and where the oracle stumbled over a
    line, one.

    The reader knows more rules than the oracle, so it may stop earlier; or at another line that was
    changed, as it may look at one column after the other. That a part is a copy of another is about
    parts, not about a place.
    """
    if "\n" in message:
        return Verdict("wrong", f"more than one line: {message}")
    if str(folder) not in message and not COPIES.match(message):
        return Verdict("wrong", f"no place: {message}")
    if broken is not None and broken.line and broken.path == changed.path:
        named = re.search(rf"{re.escape(str(changed.path))}:(\d+)", message)
        line = int(named[1]) if named else 0
        if not line or (line > broken.line and line not in changed.lines):
            return Verdict("wrong", f"line {broken.line} is wrong, the message says {message}")
    return Verdict("refused", message)


def drawn(name: str, number: int, seed: int, root: Path) -> Verdict:
    """One corruption and its verdict."""
    reader, rng = READERS[name], random.Random(f"{seed} {name} {number}")
    folder = root / "data"
    folder.mkdir(parents=True)
    reader.write(folder)
    good = reader.oracle(folder)
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name.endswith(reader.kinds)
    )
    changed = rng.choice(files)
    text = changed.suffix not in (".png", ".jpg")
    corruption = rng.choice(
        [corruption for corruption in reader.corruptions if text or corruption not in LINES]
    )
    before = changed.read_bytes().split(b"\n")
    done = f"{name} {number}: {changed.relative_to(folder)}: {corruption(changed, rng)}"
    after = changed.read_bytes().split(b"\n") if changed.is_file() else []
    pairs = enumerate(zip_longest(before, after), 1)
    # half of its cells are as they were: nobody knows which half is wrong
    mixed = corruption is column
    change = Change(changed, frozenset(line for line, (old, new) in pairs if old != new or mixed))
    try:
        verdict = judge(reader, folder, good, change, 0.9 if number % 2 else 0.001)
    except (Exception, SystemExit) as error:
        verdict = Verdict("wrong", f"{type(error).__name__}: {error}")
    return Verdict(verdict.kind, f"{done}: {verdict.said}")


def all_drawn(names: list[str], count: int, seed: int, root: Path) -> list[Verdict]:
    return [
        drawn(name, number, seed, root / name.replace(" ", "-") / str(number))
        for name in names
        for number in range(count)
    ]


def told(verdicts: list[Verdict], seed: int) -> None:
    """Print the counts; fail where anything is wrong."""
    counts = Counter(verdict.kind for verdict in verdicts)
    print(f"guard seed {seed}: {len(verdicts)} corruptions: {dict(sorted(counts.items()))}")
    wrong = [verdict.said for verdict in verdicts if verdict.kind == "wrong"]
    assert not wrong, f"guard seed {seed}:\n" + "\n".join(wrong)


@pytest.fixture(autouse=True)
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared data of a test's own."""
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    monkeypatch.chdir(tmp_path)


def test_every_data_set_with_a_path_is_guarded():
    plugins = {point.name: point.load() for point in entry_points(group="subquad.datasets")}
    with_path = {name for name, plugin in plugins.items() if "path" in plugin.config.model_fields}
    assert with_path == {reader.dataset for reader in READERS.values()}


@pytest.mark.parametrize("name", READERS)
def test_good_files_are_read_as_they_are(name: str, tmp_path: Path):
    reader = READERS[name]
    (tmp_path / "data").mkdir()
    reader.write(tmp_path / "data")
    verdict = judge(
        reader, tmp_path / "data", reader.oracle(tmp_path / "data"), Change(tmp_path), 0.001
    )
    assert verdict.kind == "equal", verdict.said


@pytest.mark.parametrize("name", READERS)
def test_hidden_files_and_folders_are_no_data(name: str, tmp_path: Path):
    reader, folder = READERS[name], tmp_path / "data"
    folder.mkdir()
    reader.write(folder)
    good = reader.oracle(folder)
    rng = random.Random(name)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hidden(path, rng)
    verdict = judge(reader, folder, good, Change(tmp_path), 0.001)
    assert verdict.kind == "equal", verdict.said


@pytest.mark.parametrize("name", READERS)
def test_some_corruptions(name: str, tmp_path: Path):
    told(all_drawn([name], 3, SEED, tmp_path), SEED)


@pytest.mark.extended
@pytest.mark.parametrize("name", READERS)
def test_drawn_corruptions(name: str, guard_seed: int, guard_rows: int | None, tmp_path: Path):
    told(all_drawn([name], guard_rows or DRAWN, guard_seed, tmp_path), guard_seed)


def test_a_reader_that_skips_bad_lines_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from subquad_datasets.text_files import source

    def lenient(path: Path):
        for number, raw in source.own_lines(path):
            with contextlib.suppress(DataError):
                yield number, source.json_object(path, number, raw)

    monkeypatch.setattr(source, "_json", lenient)
    verdicts = all_drawn(["text-files jsonl"], 12, SEED, tmp_path)
    assert any(verdict.kind == "wrong" and "neither" in verdict.said for verdict in verdicts)


def answered(words: list[str]) -> str:
    """What is wrong with how a command answers a folder of a stranger; "" where nothing is."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
    except (Exception, SystemExit) as error:
        return f"{words[0]} ends in {type(error).__name__}: {error}"
    errors = err.getvalue()
    if "unexpected" in errors or (code == 2 and errors.count("\n") != 1):
        return f"{words[0]} says {errors[:500]}"
    shown = "".join(f"{out.getvalue()}{errors}".split("\n"))
    return "" if shown.isprintable() else f"{words[0]} prints control characters"


def changed_run(good: Path, number: int, seed: int, root: Path) -> str:
    """What is wrong with the answers to a run of which one JSON file was changed; "" where
    nothing is.
    """
    folder = root / "runs" / "small" / str(number)
    shutil.copytree(good, folder)
    done = mutate(folder, random.Random(f"{seed} {number}"))
    report = ["report", str(folder), "--out", str(root / "report"), "--format", "md,csv,tex"]
    wrong = [answered(words) for words in (report, ["verify", str(folder)])]
    with contextlib.suppress(UserError):
        about(folder, final=True)
    return "".join(f"{number} {done}: {fault}\n" for fault in wrong if fault)


def changed_runs(count: int, seed: int, root: Path) -> str:
    path = root / "small.yaml"
    path.write_text(SMALL)
    assert (
        answered(["train", str(path), "train.epochs=1", "--local", "--root", str(root / "made")])
        == ""
    )
    good = only_run(root / "made")
    return "".join(changed_run(good, number, seed, root) for number in range(count))


def test_some_runs_of_strangers(tmp_path: Path):
    assert changed_runs(12, SEED, tmp_path) == ""


@pytest.mark.extended
def test_drawn_runs_of_strangers(guard_seed: int, guard_rows: int | None, tmp_path: Path):
    assert changed_runs(guard_rows or 3000, guard_seed, tmp_path) == ""
