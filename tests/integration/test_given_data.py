"""Data from Python: arrays, tensors, data sets of torch and frames are what files of them are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from command import cli
from result_file import read_result
from subquad.record.names import OPENINGS

import subquad
from subquad.cli.main import main
from subquad.errors import ConfigError, DataError

SERIES = """
name: waves
dataset: {name: table, params: {path: ., test_fraction: 0.25}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 8, num_heads: 2}}
mixer: identity
train: {epochs: 4, batch_size: 8, lr: 1.0e-3}
tracking: {uri: off}
"""
Y = np.arange(48) % 3
X = np.random.default_rng(0).normal(size=(48, 6, 2)) + Y[:, None, None]
KINDS = np.array(["red", "green", "blue"])[Y]


@pytest.fixture
def series(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "data"))
    path = tmp_path / "waves.yaml"
    path.write_text(SERIES)
    return path


class Waves(torch.utils.data.Dataset):
    """Series of several lengths."""

    def __len__(self) -> int:
        return len(X)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return X[number, : 4 + number % 3], int(Y[number])


def frame() -> pd.DataFrame:
    """A row for each time step."""
    columns = {"id": np.repeat(np.arange(48), 6), "a": X[..., 0].ravel(), "b": X[..., 1].ravel()}
    return pd.DataFrame({**columns, "kind": pd.Categorical(np.repeat(KINDS, 6))})


def described(data: Any, series: Path, *words: str) -> Any:
    dataset = subquad.datasets(series, words, data=data)
    return next(iter(dataset.values()))


def test_arrays_are_what_a_file_of_them_is(series, tmp_path):
    np.savez(tmp_path / "file.npz", x=X, y=Y)
    (of_file,) = subquad.datasets(series, [f"dataset.params.path={tmp_path}/file.npz"]).values()
    for data in (
        (X, Y),
        {"x": X, "y": Y},
        (torch.tensor(X), torch.tensor(Y)),
        torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y)),
        (X.tolist(), Y.tolist()),
    ):
        given = described(data, series)
        assert given.describe() == of_file.describe()
        for name in ("train", "validation"):
            own = given.split(name).fetch(np.arange(4), epoch=0, seed=0)
            assert all(
                np.array_equal(values, own[key])
                for key, values in of_file.split(name).fetch(np.arange(4), epoch=0, seed=0).items()
            )
        with pytest.raises(DataError, match="the test split is sealed"):
            given.split("test")
    assert len(list((tmp_path / "data").glob("*/manifest.json"))) == 1


def test_series_of_several_lengths_are_padded(series):
    dataset = described(Waves(), series)
    assert dataset.describe().max_len == 6
    assert set(dataset.split("trainval").lengths().tolist()) == {4, 5, 6}


def test_a_frame_has_its_columns_named(series):
    words = ["dataset.params.labels=[kind]"]
    spec = described(frame(), series, *words).describe()
    assert spec.class_names == ("blue", "green", "red")
    assert spec.sizes["trainval"] == 36
    with pytest.raises(
        DataError, match=r"^dataset.params.labels: data: no column 'label'; it has id, a, b, kind"
    ):
        described(frame(), series)


def test_other_frames(series):
    polars = pytest.importorskip("polars")
    words = ["dataset.params.labels=[kind]"]
    expected = described(frame(), series, *words).describe()
    given = polars.from_pandas(frame())
    for kind in (polars.Categorical, polars.String):
        cast = given.with_columns(polars.col("kind").cast(kind))
        assert described(cast, series, *words).describe() == expected


def test_hugging_face(series, tmp_path):
    hugging_face = pytest.importorskip("datasets")
    if not hasattr(hugging_face, "Dataset"):
        pytest.skip("the package is not installed")
    features = hugging_face.Features(
        {
            "x": hugging_face.Sequence(hugging_face.Sequence(hugging_face.Value("float64"))),
            "y": hugging_face.ClassLabel(names=["red", "green", "blue"]),
        }
    )
    windows = hugging_face.Dataset.from_dict({"x": X.tolist(), "y": Y.tolist()}, features)
    assert described(windows, series).describe() == described((X, KINDS), series).describe()
    rows = hugging_face.Dataset.from_pandas(frame())
    words = ["dataset.params.labels=[kind]"]
    expected = described(frame(), series, *words).describe()
    assert described(rows, series, *words).describe() == expected
    parts = hugging_face.DatasetDict({"train": rows, "test": rows.select(range(60))})
    words = [*words, "dataset.params.test_fraction=null"]
    with pytest.raises(DataError, match="are exact copies of training samples"):
        described(parts, series, *words)


def test_texts_become_lines(tmp_path, series):
    texts = np.array([f"{word} {number}" for number, word in enumerate(KINDS)])
    train, test = (texts, KINDS), (texts + "!", KINDS)
    words = ["dataset=text-files", "dataset.params.max_len=16"]
    given = described({"train": train, "test": test}, series, *words)
    assert given.describe().class_names == ("blue", "green", "red")
    with pytest.raises(DataError, match="data: texts need parts: give a dict with train and test"):
        described(train, series, *words)
    with pytest.raises(DataError, match="data: x has float64 values, must be texts; for series"):
        described((X, Y), series, *words)


GAP = X.copy()
GAP[3, 2, 1] = np.nan


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((X, Y[:-1]), r"data: y has shape \(47,\), x has 48 series$"),
        ((X[:0], Y[:0]), r"data: x has shape \(0, 6, 2\), so there is nothing in it$"),
        ((GAP, Y), r"data: x\[3\]: .* set dataset.params.missing=interpolate"),
        ((X, [None] * 48), "data: y has values that are neither all numbers nor all texts$"),
        ((X, Y + 0.5), r"data: y has shape \(48,\) and type float64, must be \(N,\) integers"),
        ((KINDS, Y), r"data: x has shape \(48,\) and type <U5, must be numbers"),
        ({"x": X}, "data: no array 'y'; it has x$"),
        (X, r"data: got ndarray, must be \(x, y\) arrays or tensors, .* for train, validation"),
        (
            {"train": (X, Y), "tset": (X, Y)},
            "data: no part 'tset' is known; there is train, validation, test; did you mean 'test'",
        ),
        (frame()[:0], "data: no rows"),
        ({"train": frame(), "test": (X, Y)}, "data: some parts are frames and others arrays"),
        ([(X[0], 1), (X[1],)] * 9, r"data\[1\]: got tuple, must be a pair"),
    ],
)
def test_what_cannot_be_used_is_one_line(data, said, series, tmp_path):
    with pytest.raises(DataError, match=said) as refused:
        subquad.train(series, data=data, root=tmp_path)
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "data") not in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_a_class_that_only_the_test_part_has(series, tmp_path):
    parts = {"train": (X, Y), "test": (X[:9] + 1, Y[:9] + 1)}
    with pytest.raises(DataError, match=r"data\['test'\]: y\[2\]: class '3' is none of TRAIN"):
        subquad.train(series, ["dataset.params.test_fraction=null"], data=parts, root=tmp_path)


def test_an_experiment_with_other_data_takes_them(small, series, tmp_path):
    with pytest.raises(
        ConfigError, match=r"image-folder has images, which are not taken from Python; give"
    ):
        subquad.train(small, ["dataset=image-folder"], data=(X, Y), root=tmp_path)
    words = ["train.epochs=1", "dataset=table", "dataset.params.test_fraction=0.25"]
    (result,) = subquad.train(small, words, data=(X, Y), root=tmp_path)
    assert result["status"] == "finished"


def test_a_run_is_resumed_reported_and_verified_without_the_objects(series, tmp_path, capsys):
    code = (
        "import numpy as np, subquad; y = np.arange(48) % 3; "
        "x = np.random.default_rng(0).normal(size=(48, 6, 2)) + y[:, None, None]; "
        f"subquad.train({str(series)!r}, data=(x, y), root={str(tmp_path)!r})"
    )
    environment = {**os.environ, "SUBQUAD_FAULT": "kill@step:9"}
    killed = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path)
    assert killed.returncode == -9
    (run,) = (tmp_path / "runs" / "waves").iterdir()
    cli(["resume", str(run), "--local"], tmp_path)
    result = read_result(run)
    assert (result["status"], result["attempts"]) == ("finished", 2)
    (whole,) = subquad.train(series, data=(X, Y), root=tmp_path / "again")
    assert result["test"]["metrics"] == whole["test"]["metrics"]
    assert main(["verify", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    assert "identity" in capsys.readouterr().out
    assert len((run / OPENINGS).read_text().splitlines()) == 1
    assert main(["eval", str(run), str(next((tmp_path / "data").glob("*/*.npz")))]) == 0


def test_a_search_takes_them(series, tmp_path):
    found = subquad.tune(
        series,
        ["train.epochs=1"],
        space="optimizer",
        budget="2-trials",
        final_seeds=1,
        data=(X, Y),
        root=tmp_path,
    )
    assert found["candidates"][0]["trials"]["finished"] == 2
