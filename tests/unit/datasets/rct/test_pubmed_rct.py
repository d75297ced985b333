"""PubMed RCT: sentences with their neighbours, conclusions, bad input with file:line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from splits import KEY, REAL_DATA, dataset_of, everything, of_real_data, texts_of

from subquad.data import NO_LABEL
from subquad.errors import DataError
from subquad_datasets.rct import PLUGIN
from subquad_datasets.rct.source import SECTIONS

FIRST = (
    "###1\nBACKGROUND\tOne .\nMETHODS\tTwo .\nRESULTS\tThree .\nCONCLUSIONS\tFour "
    ".\nCONCLUSIONS\tFive .\n\n"
)
SECOND = "###2\nOBJECTIVE\tSix .\nMETHODS\tSeven .\n\n"


DATASET = ("pubmed-rct", {"max_source": 48})


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "PubMed_20k_RCT"
    folder.mkdir()
    write(folder, FIRST + SECOND)
    return folder


def write(folder: Path, text: str, *names: str) -> None:
    """The abstracts in each file; TEST has other sentences."""
    for name in names or ("train.txt", "dev.txt", "test.txt"):
        (folder / name).write_text(text.replace("Two", "Other") if name == "test.txt" else text)


def read(dataset, split) -> tuple[list[str], Any]:
    batch = everything(split)
    assert batch.keys() == dataset.describe().arrays.keys()
    return texts_of(dataset, batch), batch


def test_conclusions_have_the_name_of_the_published_table(make):
    for view, benchmark in {"sentences": "", "conclusions": "PubMed"}.items():
        dataset = make(view=view, **({"max_target": 48} if benchmark else {}))
        dataset.prepare()
        assert dataset.describe().benchmark == benchmark


def test_sentences_with_their_neighbours(make):
    dataset = make()
    dataset.prepare()
    spec = dataset.describe()
    assert (spec.class_names, spec.target, dict(spec.sizes)) == (
        SECTIONS,
        "class",
        {"train": 7, "validation": 7, "trainval": 14},
    )
    inputs, batch = read(dataset, dataset.load("train"))
    assert inputs == [
        "1/5 One .\nTwo .",
        "2/5 Two .\nOne .\nThree .",
        "3/5 Three .\nTwo .\nFour .",
        "4/5 Four .\nThree .\nFive .",
        "5/5 Five .\nFour .",
        "1/2 Six .\nSeven .",
        "2/2 Seven .\nSix .",
    ]
    assert [SECTIONS[label] for label in batch["labels"]] == [
        *("BACKGROUND", "METHODS", "RESULTS", "CONCLUSIONS", "CONCLUSIONS"),
        *("OBJECTIVE", "METHODS"),
    ]
    assert read(dataset, dataset.split("test", KEY))[0][1] == "2/5 Other .\nOne .\nThree ."
    assert dataset.reference_scores(dataset.split("test", KEY)) == {
        "majority": pytest.approx(2 / 7)
    }
    assert read(make(neighbours=0), make(neighbours=0).load("validation"))[0][1] == "2/5 Two ."
    assert len(read(make(neighbours=9), make(neighbours=9).load("trainval"))[0]) == 14
    short = make(max_source=10)
    assert (
        short.describe().notes[1] == "7 of 7 validation sentences with neighbours cut at 10 tokens"
    )
    assert short.split("test", KEY).notes == (
        "7 of 7 test sentences with neighbours cut at 10 tokens",
    )
    assert PLUGIN.label(make().config) == "PubMed_20k_RCT-sentences"


def test_conclusions(make, tmp_path):
    dataset = make(view="conclusions", max_target=32)
    dataset.prepare()
    spec = dataset.describe()
    inputs, batch = read(dataset, dataset.load("validation"))
    assert inputs == ["One .\nTwo .\nThree ."]
    assert spec.text(batch["reference"][0]) == "Four .\nFive ."
    assert spec.target == "sequence"
    assert spec.notes == tuple(
        f"1 {name}.txt abstracts left out: they have no conclusions, or nothing else"
        for name in ("train", "dev")
    )
    assert dataset.split("test", KEY).notes[0].startswith("1 test.txt abstracts left out")
    assert PLUGIN.label(dataset.config) == "PubMed_20k_RCT-conclusions"
    write(
        tmp_path,
        "###1\nFirst .\nSecond .\n\n###2\nCONCLUSIONS\tNot this .\nMETHODS\tThis .\n",
        "new.txt",
    )
    inputs, batch = read(dataset, dataset.open_file(tmp_path / "new.txt", labelled=False))
    assert inputs == ["First .\nSecond .", "This ."]
    assert (batch["labels"] == NO_LABEL).all()


def test_files_of_a_user(make, tmp_path):
    dataset = make()
    write(tmp_path, "###1\nFirst .\nRESULTS\tSecond .\n", "new.txt")
    inputs, batch = read(dataset, dataset.open_file(tmp_path / "new.txt", labelled=False))
    assert inputs == ["1/2 First .\nSecond .", "2/2 Second .\nFirst ."]
    assert batch["labels"].tolist() == [NO_LABEL, NO_LABEL]
    with pytest.raises(
        DataError, match=r"new\.txt:2: starts with 'First \.', must be a label and a tab"
    ):
        dataset.open_file(tmp_path / "new.txt", labelled=True)
    write(tmp_path, FIRST, "new.txt")
    assert read(dataset, dataset.open_file(tmp_path / "new.txt", labelled=True))[1][
        "labels"
    ].tolist() == [0, 2, 3, 4, 4]


@pytest.mark.parametrize("view", ["sentences", "conclusions"])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "METHODS\tOne .\n",
            "1: a sentence before the first abstract; a line such as ###12345 starts one",
        ),
        ("###1\n\n###2\nMETHODS\tOne .\n", "1: an abstract without sentences"),
        ("###1\nMETHODS\tOne .\n\n###2\n", "4: an abstract without sentences"),
        (
            "###1\nMETHOD\tOne .\n",
            "2: starts with 'METHOD', must be a label and a tab; labels: BACK.*mean 'METHODS'",
        ),
        ("###1\nOne .\n", "2: starts with 'One .', must be a label and a tab"),
        ("###1\nMETHODS\t \n", "2: the sentence is empty"),
        ("", "1: the file is empty"),
        ("\n\n", "1: an abstract without sentences"),
    ],
)
@pytest.mark.parametrize("name", ["train.txt", "test.txt"])
def test_bad_input(make, data, name: str, view: str, text: str, told: str):
    write(data, text, name)
    with pytest.raises(DataError, match=rf"{name}:{told}"):
        make(view=view).prepare()


def test_no_abstract_has_conclusions(make, data):
    write(data, SECOND, "dev.txt")
    with pytest.raises(DataError, match=r"dev\.txt: no abstract has conclusions"):
        make(view="conclusions").prepare()


@of_real_data
def test_real_abstracts(tmp_path):
    path = str(REAL_DATA / "pubmed_rct_like")
    sentences = dataset_of("pubmed-rct", tmp_path, path=path)
    sentences.prepare()
    assert sentences.describe().sizes == {"train": 19_757, "validation": 2_277, "trainval": 22_034}
    assert len(sentences.split("test", KEY)) == 2_337
    conclusions = dataset_of("pubmed-rct", tmp_path, path=path, view="conclusions")
    assert conclusions.describe().sizes["train"] <= 1_479
