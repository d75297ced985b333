"""Every built-in data set, from files of each layout and generated: sizes, parts that share
nothing, the seal, description, types, determinism, pickling, lengths, copies and prepared folders.

What is special of a data set stands in its own file.
"""

from __future__ import annotations

import hashlib
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from plain_readers import READERS
from pydantic import ValidationError
from splits import dataset_of, everything, opened

from subquad.data import Dataset, Split
from subquad.errors import DataError
from subquad.registry import find_plugins, resolve

PARTS = ("train", "validation", "trainval")
DRAWN: dict[str, dict[str, Any]] = {
    "copy": {"train_size": 60, "validation_size": 20, "test_size": 30},
    "lra-image": {"train_size": 40, "test_size": 11, "side": 16},
    "lra-listops": {
        "train_size": 300,
        "validation_size": 60,
        "test_size": 40,
        "min_length": 10,
        "max_length": 60,
        "max_depth": 5,
    },
    "lra-pathfinder": {
        "difficulty": "easy",
        "train_size": 12,
        "validation_size": 4,
        "test_size": 6,
        "processes": 1,
    },
    "lra-retrieval": {"train_size": 12, "validation_size": 8, "test_size": 5, "max_len": 256},
    "lra-text": {"train_size": 40, "test_size": 11, "max_len": 512},
    "mqar": {
        "train_size": 60,
        "validation_size": 20,
        "test_size": 30,
        "length": 40,
        "num_pairs": 4,
        "num_keys": 8,
        "num_values": 8,
        "filler": "random",
    },
    "pubmed-summarization": {
        "train_size": 5,
        "validation_size": 2,
        "test_size": 3,
        "max_source": 1024,
        "max_target": 64,
    },
    "recall": {"train_size": 60, "validation_size": 20, "test_size": 30},
    "text-lm": {"train_size": 30, "validation_size": 5, "test_size": 5, "context": 32},
}
"""Data sets that generate what they give, and how much of it."""

WINDOWS = ("text-lm", "text-lm, generated")
"""Their samples are parts of one text, so that parts of a split are no parts of its samples."""

TEXTS = ("class", "next-token")
KINDS = {
    "copy": ("tokens", TEXTS),
    "image-folder": ("images", ("class",)),
    "imagenet": ("images", ("class",)),
    "lra-image": ("tokens", TEXTS),
    "lra-listops": ("tokens", TEXTS),
    "lra-pathfinder": ("tokens", TEXTS),
    "lra-retrieval": ("tokens", ("pair",)),
    "lra-text": ("tokens", TEXTS),
    "mqar": ("tokens", ("positions", *TEXTS)),
    "pubmed-rct": ("tokens", ("class", "sequence")),
    "pubmed-summarization": ("tokens", ("sequence",)),
    "recall": ("tokens", TEXTS),
    "table": ("series", ("class", "values", "multilabel")),
    "text-files": ("tokens", ("class",)),
    "text-lm": ("tokens", ("next-token",)),
    "uea": ("series", ("class",)),
}
"""What each gives, and what may be learnt of it."""

CASES = {name: name for name in READERS} | {f"{name}, generated": name for name in DRAWN}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The name of a case, the data set and its parameters, and a folder for what it keeps."""
    folder = tmp_path_factory.mktemp("data")
    name = CASES[request.param]
    if request.param in READERS:
        reader = READERS[name]
        (folder / "files").mkdir()
        reader.write(folder / "files")
        params = {"path": str(folder / "files"), **reader.params}
        return request.param, reader.dataset, params, folder
    return request.param, name, DRAWN[name], folder


def build(case: Any, root: str = "root", **params: Any) -> Dataset:
    _, name, given, folder = case
    return dataset_of(name, folder / root, **{**given, **params})


def batch(split: Split, rows: Any = None, epoch: int = 0, seed: int = 0) -> Mapping[str, Any]:
    indices = np.arange(len(split)) if rows is None else np.array(rows)
    return split.fetch(indices, epoch=epoch, seed=seed)


def same(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    return first.keys() == second.keys() and all(
        np.array_equal(first[key], second[key]) for key in first
    )


def test_every_data_set_is_here():
    found = {plugin.name for plugin in find_plugins("dataset") if plugin.distribution == "subquad"}
    assert found == {reader.dataset for reader in READERS.values()} | set(DRAWN) == set(KINDS)


@pytest.mark.parametrize("name", KINDS)
def test_a_data_set_says_what_it_gives_and_what_may_be_learnt(name):
    plugin: Any = resolve("dataset", f"subquad:{name}").plugin
    assert (plugin.inputs, plugin.targets) == KINDS[name]


def test_sizes_are_told_and_test_is_not_among_them(case):
    dataset = build(case)
    sizes = dict(dataset.describe().sizes)
    assert sizes == {name: len(opened(dataset, name)) for name in PARTS}
    assert all(sizes.values())


def test_the_test_split_is_sealed(case):
    dataset = build(case)
    with pytest.raises(DataError, match="the test split is sealed"):
        dataset.split("test")
    assert len(opened(dataset, "test")) > 0


def test_content_is_that_of_what_is_given_wherever_it_lies(case, tmp_path):
    dataset = build(case)
    elsewhere = {}
    if "path" in case[2]:
        shutil.copytree(case[2]["path"], tmp_path / "files")
        elsewhere["path"] = str(tmp_path / "files")
    again = build(case, "other root", **elsewhere)
    contents = [opened(dataset, name).content() for name in (*PARTS, "test")]
    assert contents == [opened(again, name).content() for name in (*PARTS, "test")]
    assert len(set(contents)) == len(contents)
    assert dataset.test_content() == again.test_content() is not None


def test_the_parts_of_training_share_nothing_and_are_all_of_it(case):
    if case[0] in WINDOWS:
        pytest.skip("its own file says how a text is cut")
    dataset = build(case)
    train, validation, whole = (opened(dataset, name).digests() for name in PARTS)
    assert sorted([*train, *validation]) == sorted(whole)
    assert not set(train) & set(validation)
    assert not set(whole) & set(opened(dataset, "test").digests())


def test_batches_are_as_described(case):
    dataset = build(case)
    spec = dataset.describe()
    for name in (*PARTS, "test"):
        split = opened(dataset, name)
        found = batch(split)
        assert spec.arrays.keys() <= found.keys()
        for key, array in spec.arrays.items():
            if key == "reference":
                continue  # as long as the longest of its split
            longest = [spec.lengths[axis] for axis in array.axes if axis in spec.lengths]
            assert found[key].dtype == array.dtype, key
            assert found[key].shape == (len(split), *longest), key
        if spec.target == "class":
            assert found["labels"].min() >= 0
            assert found["labels"].max() < spec.num_classes == len(spec.class_names)
        if spec.vocab_size:
            for side in ("", "_b") if "keep_b" in found else ("",):
                tokens, keep = found[f"inputs{side}"], found[f"keep{side}"]
                assert 0 < tokens[keep].min() <= tokens[keep].max() < spec.vocab_size
                assert not tokens[~keep].any()
            masks = [found[key].sum(1) for key in ("keep", "keep_b") if key in found]
            lengths = split.lengths()
            assert lengths is None or np.array_equal(lengths, np.max(masks, 0))


def test_a_sample_is_the_same_in_any_batch_and_in_another_process(case):
    dataset = build(case)
    for name in (*PARTS, "test"):
        split = opened(dataset, name)
        last = len(split) - 1
        rows = [last, 0] if not split.together > 1 else [0, 1]
        expected = batch(split, rows, epoch=2, seed=1)
        again = pickle.loads(pickle.dumps(split))  # noqa: S301  (made here)
        assert same(batch(again, rows, epoch=2, seed=1), expected)
        assert len(again) == len(split)
        alone = batch(split, rows[:1], epoch=2, seed=1)
        common = [key for key in alone if not key.startswith("mix")]
        assert all(np.array_equal(alone[key][0], expected[key][0]) for key in common)


def test_it_is_prepared_once_and_damage_is_prepared_again(case):
    root = case[3] / "root"
    dataset = build(case)
    dataset.prepare()
    before = {key: value.copy() for key, value in batch(opened(dataset, "train")).items()}
    files = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    build(case).prepare()
    stamps = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    assert stamps == files
    manifests = [path for path in files if path.name == "manifest.json"]
    for manifest in manifests:
        next(path for path in sorted(manifest.parent.iterdir()) if path != manifest).write_text("")
    again = build(case)
    again.prepare()
    assert same(batch(opened(again, "train")), before)


def test_reference_scores_are_numbers(case):
    if "summarization" in case[0]:
        pytest.skip("ROUGE takes long; its own file has it")
    dataset = build(case)
    for name, score in dataset.reference_scores(opened(dataset, "validation")).items():
        values = score.values() if isinstance(score, Mapping) else [score]
        numbers = [value for value in values if not isinstance(value, str)]
        assert all(np.isfinite(value) for value in numbers), name


@pytest.mark.parametrize("case", [f"{name}, generated" for name in DRAWN], indirect=True)
def test_what_is_generated_follows_the_seed_and_larger_splits_only_append(case):
    few = build(case)
    larger = {key: 2 * value for key, value in case[2].items() if key.endswith("_size")}
    del larger["train_size"]
    many, other = build(case, **larger), build(case, seed=4)
    for name in ("trainval", "test"):
        if case[0] in WINDOWS:
            continue
        expected = opened(few, name).digests()
        assert np.array_equal(opened(many, name).digests()[: len(expected)], expected)
        assert not set(opened(other, name).digests()) & set(expected)


@pytest.mark.parametrize("case", [f"{name}, generated" for name in DRAWN], indirect=True)
def test_generated_data_say_so_and_their_settings_need_no_files(case):
    dataset = build(case)
    begun = ("synthetic control task", "stand-in data")
    assert any(note.startswith(begun) for note in dataset.describe().notes)
    kind: Any = type(dataset.config)
    if "path" in kind.model_fields:
        for name in ("train_size", "test_size", "seed"):
            with pytest.raises(ValidationError, match=f"{name} .* has no effect with path .*null"):
                kind.model_validate({"path": "x", name: 70})


@pytest.mark.parametrize("case", READERS, indirect=True)
def test_the_description_does_not_depend_on_what_test_holds(case):
    folder = case[3] / "files"
    files = [path for path in folder.rglob("*") if path.is_file()]
    held = {path: path.read_bytes() for path in files if "test" in str(path.relative_to(folder))}
    spec = build(case).describe()
    for path in held:
        path.write_bytes(b"\xff")
    try:
        found = build(case, root="anew")
        assert replace(found.describe(), text=None) == replace(spec, text=None)
        assert len(found.load("train")) == spec.sizes["train"]
    finally:
        for path, content in held.items():
            path.write_bytes(content)


def digest(split: Split) -> str:
    """Of all arrays, with their names and types."""
    found = hashlib.sha256()
    for name, values in sorted(everything(split).items()):
        found.update(f"{name} {values.dtype} {values.shape}".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:16]


PINNED: list[tuple[str, dict[str, Any], str, str]] = [
    ("copy", {}, "705e7ae89363a40e", "46ea824f68b56b56"),
    ("lra-image", {}, "83768e876496bdfb", "935466b7cd011060"),
    ("lra-listops", {}, "d58bddbc84ad2729", "37bdf62da1139b3e"),
    ("lra-pathfinder", {}, "e3aa4dae7c379fe2", "931e7e4be6e8c892"),
    ("lra-retrieval", {}, "4a6400dc18221efc", "f8ec4542827c254d"),
    ("lra-text", {}, "dbd61e1f04783711", "b7d1e627e2a112e6"),
    ("mqar", {}, "4f61f1ad2021dbee", "0a329de315553ea1"),
    ("pubmed-summarization", {}, "53c27b4e983bb524", "18d2d7e6b3dd6af2"),
    ("recall", {}, "679b45662b122aca", "c7425c739f1d093f"),
    ("text-lm", {}, "15adc6769f230599", "d1cb32dcafab0cd3"),
    ("copy", {"position": 3, "num_values": 5}, "4b94cf86c0ebd4e6", "078e5ab909306cbe"),
    ("lra-image", {"side": 32, "seed": 1}, "d8921ad501d364e4", "537cb6edbc46ee28"),
    ("lra-listops", {"max_args": 3, "seed": 7}, "e05bcbb5dade3dff", "82c275bfdd25e220"),
    ("lra-pathfinder", {"difficulty": "hard", "seed": 2}, "919518fae97b8033", "d139072b5a6beee9"),
    (
        "lra-pathfinder",
        {"difficulty": "intermediate", "resolution": 64},
        "0ad149e1e8d8336d",
        "7efd5ebcacabfb18",
    ),
    ("lra-retrieval", {"seed": 3}, "a401a8b2a6422f28", "6bd82ee217f0eab0"),
    ("lra-text", {"seed": 1}, "5870a28b4530ca35", "1a0ee1fa6538f1cc"),
    ("mqar", {"labels": "last", "num_queries": 2}, "0c35f487ef9e395d", "fcbe17d547e23d48"),
    (
        "mqar",
        {"filler": "blank", "power_a": 1.0, "seed": 5},
        "f6cecbc9be1ccfdf",
        "e8edfea67dcdb427",
    ),
    ("mqar", {"length": 120, "num_queries": 2}, "6cb4cb03f1ac2531", "0b9a2ccffbf9a8ff"),
    ("recall", {"num_pairs": 5, "num_keys": 30, "seed": 9}, "f010fc214763287d", "0cc9190e5e1ed10a"),
    ("text-lm", {"tokenizer": "bpe", "vocab_size": 300}, "ba36276f40ec02c6", "fcbda4b021536bd8"),
]
"""Digests of what is learnt from, and of TEST."""


@pytest.mark.parametrize(("name", "params", "trainval", "test"), PINNED)
def test_what_is_generated_is_the_same_everywhere_and_always(
    name, params, trainval, test, tmp_path
):
    """So each fault of a generator shows; other numbers would be another data set."""
    dataset = build((name, name, DRAWN[name], tmp_path), **params)
    found = [digest(opened(dataset, part)) for part in ("trainval", "test")]
    assert found == [trainval, test]
