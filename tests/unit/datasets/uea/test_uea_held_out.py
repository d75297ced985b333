"""A part of TRAIN in TEST's place: what it holds, who may see it, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from splits import KEY, REAL_DATA, dataset_of, of_real_data

from subquad.cli.main import main
from subquad.data import ArraySplit
from subquad.errors import DataError

ROWS = "".join(f"{i},{i + 1}:{i + 2},{i * i}:up\n" for i in range(10))
ROWS += "".join(f"{i},{i - 1}:{i - 2},{3 * i}:down\n" for i in range(20, 30))
NOTE = "stand-in data: TEST is a part of TRAIN (6 of 20 series), not the archive's TEST"


@pytest.fixture
def held(toy):
    """`held(**params)`: twenty series without a TEST file, 30 % of each class held back; values
    as in the file.
    """
    return lambda rows=ROWS, **params: toy(
        train=rows, test=None, **{"test_fraction": 0.3, "normalize": False, **params}
    )


def series(split: object) -> set[bytes]:
    assert isinstance(split, ArraySplit)
    return {row.tobytes() for row in split.arrays["inputs"]}


def test_parts_are_disjoint_by_class_and_whole(held):
    dataset = held()
    dataset.prepare()
    test = dataset.split("test", KEY)
    assert np.bincount(test.labels).tolist() == [3, 3]
    assert dataset.describe().sizes == {"train": 12, "validation": 2, "trainval": 14}
    parts = [series(test), series(dataset.load("train")), series(dataset.load("validation"))]
    assert [len(part) for part in parts] == [6, 12, 2]
    assert len(set.union(*parts)) == 20
    assert parts[1] | parts[2] == series(dataset.load("trainval"))


def test_statistics_are_those_of_the_rest(held):
    rest = held().load("trainval").arrays["inputs"].reshape(-1, 2)
    raw, scaled = (
        held().load("test").arrays["inputs"],
        held(normalize=True).load("test").arrays["inputs"],
    )
    np.testing.assert_allclose(
        scaled, (raw - rest.mean(axis=0)) / rest.std(axis=0, ddof=1), rtol=1e-5
    )


def test_draw_follows_the_seed_alone(held):
    first, again, other = (series(held(split_seed=seed).load("test")) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_every_number_says_so(held):
    assert held().describe().notes == (NOTE,)


def test_interpolated_values_are_counted_where_they_are(held):
    rows = ROWS.replace(",", ",?,")
    dataset = held(rows=rows, missing="interpolate")
    assert "28 TRAIN values interpolated" in dataset.describe().notes
    assert dataset.load("test").notes == ("12 TEST values interpolated",)


def test_refused_where_there_is_a_test_file(toy, tmp_path: Path):
    dataset = toy(test_fraction=0.3)
    message = (
        r"^dataset\.params\.test_fraction: got 0\.3, but there is .*/Toy/Toy_TEST\.ts; "
        r"leave it null$"
    )
    with pytest.raises(DataError, match=message):
        dataset.prepare()
    with pytest.raises(DataError, match=message):
        dataset.describe()


def test_a_class_of_one_series_cannot_give_one(held):
    with pytest.raises(
        DataError, match=r"test_fraction: class down has 1 TRAIN series, too few to hold one back$"
    ):
        held(rows="1,2:3,4:up\n5,6:7,8:up\n1,1:2,2:down\n").describe()


ONE = """
name: one
dataset: {name: uea, params: {problem: Toy, path: data}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 8, num_heads: 2}}
mixer: identity
train: {epochs: 1, batch_size: 8, lr: 1e-3}
tracking: {uri: off}
"""


@pytest.mark.ci
@pytest.mark.parametrize("protocol", ["honest", "fixed", "paper"])
def test_training_is_refused_before_it_starts(held, tmp_path, monkeypatch, capsys, protocol):
    held()
    (tmp_path / "one.yaml").write_text(ONE)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "one.yaml", "--local", f"protocol={protocol}"]) == 2
    errors = capsys.readouterr().err
    assert "Toy_TEST.ts is missing" in errors
    assert errors.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.ci
def test_a_run_keeps_the_note(held, tmp_path: Path, monkeypatch):
    held()
    (tmp_path / "one.yaml").write_text(ONE)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "one.yaml", "--local", "dataset.params.test_fraction=0.3"]) == 0
    (result,) = [json.loads(path.read_text()) for path in (tmp_path / "runs").rglob("result.json")]
    assert NOTE in json.dumps(result)
    assert result["test"]["samples"] == 6


@of_real_data
def test_heartbeat(tmp_path: Path):
    given = {"problem": "Heartbeat_train204", "path": str(REAL_DATA / "uea")}
    dataset = dataset_of("uea", tmp_path, **given, test_fraction=0.3)
    dataset.prepare()
    assert dataset.describe().sizes["trainval"] == 143
    assert (
        dataset.describe()
        .notes[-1]
        .startswith("stand-in data: TEST is a part of TRAIN (61 of 204 series)")
    )
    test = dataset.load("test")
    assert test.arrays["inputs"].shape == (61, 405, 61)
    assert np.bincount(test.labels).tolist() == [44, 17]
    assert not series(test) & series(dataset.load("trainval"))
    with pytest.raises(DataError, match=r"did you mean 'Heartbeat_train204'\?$"):
        dataset_of("uea", tmp_path, **{**given, "problem": "Heartbeat"}).prepare()
