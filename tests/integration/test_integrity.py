"""Every file of a run's folder flipped, cut or taken away: what verify, report and those that
need the model say.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from damage import Said, call, make_folders
from result_file import read_result
from small_run import SMALL

from subquad.api import load
from subquad.record.files import parse_object
from subquad.record.integrity import look
from subquad.record.layout import bound_files
from subquad.record.names import JOURNAL

DAMAGES = ("flipped", "cut", "removed")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A finished and a stopped run; their best checkpoint is not always the last one."""
    return make_folders(tmp_path_factory.mktemp("whole"), ("run",))


@pytest.fixture
def copy(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A finished run with three checkpoints, which may be damaged."""
    return copied(folders["finished run"], tmp_path)


def copied(folder: Path, place: Path) -> Path:
    shutil.rmtree(place / "runs", ignore_errors=True)
    return Path(shutil.copytree(folder, place / "runs" / folder.parent.name / folder.name))


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Flip one bit of a file, cut it anywhere, or take it away."""
    content = bytearray(path.read_bytes())
    if kind == "removed":
        path.unlink()
        return
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content if kind == "flipped" else content[:place])


def reported(folder: Path) -> tuple[Said, str]:
    """What `subquad report` says of the only run's row, reasons included."""
    outcome = call("report", str(folder), "--json", "--out", str(folder.parent / "out"))
    rows = json.loads(outcome.out)["rows"] if outcome.code == 0 else []
    return outcome, "; ".join(row["status"] for row in rows if row["kind"] == "mixer")


def with_sums(folder: Path) -> Iterator[Path]:
    """The files of a run's folder that have a sum: result, what it stands on, and all of its
    checkpoints.
    """
    yield folder / "result.json"
    yield from bound_files(folder).values()
    yield from sorted(folder.glob("checkpoints/*/*"))


def wrong_words(folder: Path, name: Path, kind: str, seed: int) -> list[str]:
    """What verify and report should have said of one damage, and did not."""
    damage(folder / name, kind, random.Random(seed))
    verified, (outcome, row) = call("verify", str(folder)), reported(folder)
    found = [f"verify: {fault}" for fault in verified.faults()]
    found += [f"report: {fault}" for fault in outcome.faults()]
    if name.name == "result.json" and kind == "removed":
        return found if "unfinished" in row else [*found, f"report: {row}"]
    if verified.code == 0 or "WRONG" not in verified.out:
        found.append(f"verify passes it: {verified.out}{verified.err}")
    if outcome.code == 0 and "not verified" not in row and "damaged" not in row:
        found.append(f"report passes it: {row}")
    return found


def test_every_file_with_a_sum_is_looked_at(folders, tmp_path):
    whole, found = folders["finished run"], list[str]()
    names = [path.relative_to(whole) for path in with_sums(whole)]
    assert len({path.parent for path in names if path.name == "manifest.json"}) == 3
    for seed, name in enumerate(names):
        copy = copied(whole, tmp_path)
        kind = DAMAGES[seed % len(DAMAGES)]
        found += [f"{name}: {kind}: {words}" for words in wrong_words(copy, name, kind, seed)]
    assert found == []


def test_whole_folders_are_whole(folders, capsys):
    for name, folder in folders.items():
        outcome = call("verify", str(folder))
        assert (outcome.code, outcome.err) == (0, ""), name
        assert "whole checkpoints: " in outcome.out
        assert "not here" not in outcome.out


def test_a_flipped_bit_of_a_checkpoint_that_is_neither_best_nor_last_is_found(copy):
    step = min((copy / "checkpoints").iterdir())
    assert step.name != f"step-{read_result(copy)['best']['step']:08d}"
    damage(step / "optimizer.safetensors", "flipped", random.Random(0))
    outcome = call("verify", str(copy))
    assert outcome.code == 1
    fault = f"checkpoints/{step.name}/optimizer.safetensors has changed: its sha256 differs"
    assert fault in outcome.out
    assert fault in reported(copy)[1]


def test_report_and_verify_say_the_same_of_files(copy):
    for name in ("metrics.jsonl", "checkpoints/step-00000030/rng.safetensors", "plan.json"):
        damage(copy / name, "cut", random.Random(1))
    faults = look(copy).faults
    assert len(faults) == 3
    outcome, (_, row) = call("verify", str(copy)), reported(copy)
    assert all(f"WRONG: {fault}" in outcome.out for fault in faults)
    assert all(fault in row for fault in faults)


def test_a_copy_without_checkpoints_is_not_damaged(copy):
    shutil.rmtree(copy / "checkpoints")
    outcome = call("verify", str(copy))
    assert outcome.code == 0
    assert "not here: checkpoints" in outcome.out
    assert "recomputed from 60 answers" in outcome.out
    assert reported(copy)[1] == "1 finished"


def test_a_checkpoint_that_was_pruned_is_not_here(copy):
    shutil.rmtree(copy / "checkpoints" / "step-00000030")
    outcome = call("verify", str(copy))
    assert (outcome.code, "not here: checkpoints/step-00000030" in outcome.out) == (0, True)
    assert reported(copy)[1] == "1 finished"
    (copy / "checkpoints" / "step-00000026" / "manifest.json").unlink()
    assert call("verify", str(copy)).code == 1


def test_of_a_run_without_a_result_each_file_is_looked_at(folders, tmp_path):
    whole, found = folders["stopped run"], list[str]()
    with_check = [path for path in bound_files(whole).values() if path.suffix != ".yaml"]
    names = [path.relative_to(whole) for path in (*with_check, *whole.glob("checkpoints/*/*"))]
    assert len(names) > 10
    for seed, name in enumerate(names):
        copy = copied(whole, tmp_path)
        damage(copy / name, "flipped", random.Random(seed))
        verified, row = call("verify", str(copy)), reported(copy)[1]
        if verified.code != 1 or "unfinished (" not in row:
            found.append(f"{name}: {verified.out}{row}")
    assert found == []


def test_whoever_needs_the_model_needs_its_file_only(copy, tmp_path):
    before = {which: load(copy, which=which).state_dict() for which in ("best", "last")}
    for name in ("optimizer.safetensors", "rng.safetensors", "state.json"):
        for path in copy.glob(f"checkpoints/*/{name}"):
            damage(path, "flipped", random.Random(2))
    for which, state in before.items():
        after = load(copy, which=which).state_dict()
        assert all(torch.equal(state[name], after[name]) for name in state)
    assert call("export", str(copy), str(tmp_path / "model")).code == 0
    assert call("diagnose", str(copy), "--out", str(tmp_path / "passport")).code == 0
    assert (
        call("swap", str(copy), "identity", "--new-weights", "--out", str(tmp_path / "swap")).code
        == 0
    )
    (tmp_path / "new.yaml").write_text(SMALL)
    given = (f"init.from={copy}", "train.epochs=1", "--local", "--root", str(tmp_path / "new"))
    assert call("train", str(tmp_path / "new.yaml"), *given).code == 0


@pytest.mark.parametrize("which", ["best", "last"])
def test_a_damaged_model_is_named_with_its_own_step(copy, tmp_path, which):
    result = read_result(copy)
    step = result["best"]["step"] if which == "best" else result["steps"]
    path = copy / "checkpoints" / f"step-{step:08d}" / "model.safetensors"
    damage(path, "flipped", random.Random(3))
    outcome = call("export", str(copy), str(tmp_path / "model"), "--which", which)
    assert outcome.code == 2
    assert f"the {which} checkpoint is that of step {step}: {path} has changed" in outcome.err
    path.parent.joinpath("manifest.json").unlink()
    outcome = call("export", str(copy), str(tmp_path / "model"), "--which", which)
    assert f"the {which} checkpoint is that of step {step}: " in outcome.err
    shutil.rmtree(path.parent)
    outcome = call("export", str(copy), str(tmp_path / "model"), "--which", which)
    assert f"step-{step:08d}: is not here" in outcome.err
    assert not (tmp_path / "model").exists()


def test_the_best_weights_of_a_run_without_a_result_are_those_of_its_newest_checkpoint(
    folders, tmp_path
):
    copy = copied(folders["stopped run"], tmp_path)
    newest = max((copy / "checkpoints").iterdir())
    best = parse_object((newest / "manifest.json").read_bytes())["best"]
    before = load(copy).state_dict()
    damage(newest / "optimizer.safetensors", "cut", random.Random(4))
    after = load(copy).state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    damage(copy / "checkpoints" / f"step-{best:08d}" / "model.safetensors", "cut", random.Random(5))
    outcome = call("export", str(copy), str(tmp_path / "model"))
    assert f"the best checkpoint is that of step {best}: " in outcome.err


def test_another_experiment_is_not_evaluated_with_the_weights(copy, tmp_path):
    path = copy / "experiment.yaml"
    path.write_text(path.read_text().replace("order: 3", "order: 2"))
    outcome = call("export", str(copy), str(tmp_path / "model"))
    assert outcome.code == 2
    assert "changed since the run was started: mixer.params.order" in outcome.err


def test_trials_of_a_search_are_looked_at(tmp_path):
    (tmp_path / "whole").mkdir()
    whole = make_folders(tmp_path / "whole", ("search",))["finished search"]
    assert call("verify", str(whole)).code == 0
    trial = whole.joinpath("trials", "small", "00001")
    for seed, path in enumerate(
        (trial / "trial.json", trial / "result.json", whole / "search.json", whole / JOURNAL)
    ):
        for kind in ("flipped",) if path.name == JOURNAL else ("flipped", "cut"):  # cut is torn
            copy = copied(whole, tmp_path)
            damage(copy / path.relative_to(whole), kind, random.Random(seed))
            outcome = call("verify", str(copy))
            assert (outcome.code, path.name in outcome.out) == (1, True), (path.name, kind, outcome)


@pytest.mark.extended
def test_drawn_damages_of_every_kind_of_folder(tmp_path, guard_seed, guard_rows):
    """Each file that has a sum, each kind of damage, at drawn places; then those that need the
    model.
    """
    rng, found = random.Random(guard_seed), list[str]()
    (tmp_path / "whole").mkdir()
    whole = make_folders(tmp_path / "whole", ("run", "study"))
    runs = [run for folder in whole.values() for run in (folder, *folder.glob("cells/*"))]
    runs = [run for run in runs if (run / "result.json").exists()]
    weights = {run: load(run).state_dict() for run in runs}
    for row in range(guard_rows or 300):
        run, kind = rng.choice(runs), rng.choice(DAMAGES)
        name = rng.choice([path.relative_to(run) for path in with_sums(run)])
        copy = copied(run, tmp_path)
        words = wrong_words(copy, name, kind, rng.randrange(2**31)) + wrong_model(
            copy, weights[run]
        )
        found += [
            f"seed {guard_seed}, row {row}: {run.name}: {name}: {kind}: {text}" for text in words
        ]
    assert found == []


def wrong_model(folder: Path, before: dict[str, torch.Tensor]) -> list[str]:
    """What the best model of a damaged folder may not be: another one, or refused without its
    place.
    """
    out = folder.parent / "model"
    shutil.rmtree(out, ignore_errors=True)
    outcome = call("export", str(folder), str(out))
    found = [f"export: {fault}" for fault in outcome.faults()]
    if outcome.code == 0:
        after = load(out).state_dict()
        found += [
            f"export: {name} is another"
            for name in before
            if not torch.equal(before[name], after[name])
        ]
    return found
