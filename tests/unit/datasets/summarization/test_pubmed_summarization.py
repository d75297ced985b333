"""Summaries of articles: layouts, what is cut, titles, bad input with file:line, lead-3."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from splits import KEY, REAL_DATA, batch, dataset_of, everything, of_real_data, texts_of

from subquad.data import NO_LABEL
from subquad.data.copies import check_copies
from subquad.errors import DataError
from subquad_datasets.summarization import PLUGIN, Config
from subquad_datasets.summarization.guesses import constant_words, first_sentences

COHAN = {
    "article_id": "PMC1",
    "article_text": ["first sentence .", "second one .", "third ."],
    "abstract_text": ["<S> a summary . </S>", "<S> in two sentences . </S>"],
    "section_names": ["introduction", "results"],
    "sections": [["first sentence ."], ["second one .", "third ."]],
}
SUMPUBMED = {
    "id": 1,
    "article": "BACKGROUND\nfirst sentence . second one .\n\nRESULTS\nthird of p<dig> .",
    "abstract": "BACKGROUND\na summary .",
    "short_abstract": "shorter .",
}
OWN = {
    "body": [["Intro", "first sentence ."], ["End", "last ."]],
    "summary": "a summary .",
    "title": "A title",
}


DATASET = ("pubmed-summarization", {"max_source": 64, "max_target": 16})


def write(
    folder: Path, *rows: Any, names: tuple[str, ...] = ("train.jsonl", "val.jsonl", "test.jsonl")
) -> None:
    """The rows in each file, with a number in each file's articles, so that splits differ."""
    for name in names:
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        text = "".join(f"{line}\n" for line in lines).replace("third", f"third in {name[:2]}")
        (folder / name).write_bytes(
            lzma.compress(text.encode()) if name.endswith(".xz") else text.encode()
        )


def texts(dataset, name: str = "validation") -> list[dict[str, str]]:
    """What stands in the arrays of each sample."""
    text, found = dataset.describe().text, batch(dataset, name)
    assert found.keys() == dataset.describe().arrays.keys()
    rows = {name: rows for name, rows in found.items() if not name.startswith("keep")}
    rows["labels"] = np.where(rows["labels"] == NO_LABEL, 0, rows["labels"])
    return [
        {name: text(row[place].tolist()) for name, row in rows.items()}
        for place in range(len(rows["labels"]))
    ]


@pytest.mark.parametrize(
    "names", [("train.txt", "val.txt", "test.txt"), ("train.jsonl.xz", "dev.jsonl", "test.json")]
)
def test_cohans_layout(make, tmp_path, names: tuple[str, ...]):
    write(tmp_path / "data", COHAN, {**COHAN, "section_names": []}, names=names)
    dataset = make(titles=True, max_titles=24)
    dataset.prepare()
    first, second = texts(dataset)
    assert first == {
        "inputs": f"first sentence .\nsecond one .\nthird in {names[1][:2]} .",
        "labels": "a summary .\nin t",
        "reference": "a summary .\nin two sentences .",
        "inputs_titles": "introduction\nresults",
    }
    assert second["inputs_titles"] == ""
    spec = dataset.describe()
    assert dict(spec.lengths) == {"length": 64, "target": 16, "reference": 30, "titles": 24}
    assert spec.sizes == {"train": 2, "validation": 2, "trainval": 4}
    assert spec.notes == (
        "2 of 2 train summaries cut at 16 tokens",
        "2 of 2 validation summaries cut at 16 tokens",
    )
    assert [len(texts(dataset, name)) for name in ("train", "trainval", "test")] == [2, 4, 2]
    assert texts(dataset, "test")[0]["inputs"].endswith("third in te .")
    assert make().describe().arrays.keys() == spec.arrays.keys() - {"inputs_titles", "keep_titles"}


def test_sumpubmed(make, tmp_path):
    write(tmp_path / "data", SUMPUBMED)
    (found,) = texts(make(titles=True, max_target=64))
    assert found == {
        "inputs": "first sentence . second one .\n\nthird in va of p<dig> .",
        "labels": "BACKGROUND\na summary .",
        "reference": "BACKGROUND\na summary .",
        "inputs_titles": "BACKGROUND\nRESULTS",
    }
    short = make(target_field="short_abstract")
    assert texts(short)[0]["reference"] == "shorter ."
    assert PLUGIN.label(short.config) == "data-short_abstract"


def test_fields_of_ones_own(make, tmp_path):
    write(tmp_path / "data", OWN)
    given = {"source_field": "body", "target_field": "summary", "max_target": 64}
    (found,) = texts(make(titles=True, **given))
    assert (found["inputs"], found["labels"], found["inputs_titles"]) == (
        "first sentence .\nlast .",
        "a summary .",
        "Intro\nEnd",
    )
    assert texts(make(titles=True, titles_field="title", **given))[0]["inputs_titles"] == "A title"
    write(tmp_path / "data", SUMPUBMED)
    with pytest.raises(
        DataError, match=r"train\.jsonl:1: no field 'body'; the row holds \['abstract', 'article'"
    ):
        make(**given).prepare()


def test_the_end_token_follows_what_is_whole(make, tmp_path):
    rows = [{"article": "x" * size, "abstract": "y" * size} for size in (14, 15, 16, 17, 70)]
    write(tmp_path / "data", *rows)
    dataset = make()
    found = batch(dataset, "train")
    y = ord("y") + 2
    ends = [[y] * 14 + [1, NO_LABEL], [y] * 15 + [1], *[[y] * 16] * 3]
    assert found["labels"].tolist() == ends
    assert (found["reference"] > 0).sum(axis=1).tolist() == [14, 15, 16, 17, 70]
    assert (
        found["keep"].sum(axis=1).tolist()
        == [14, 15, 16, 17, 64]
        == dataset.load("train").lengths().tolist()
    )
    assert (found["inputs"] > 0).tolist() == found["keep"].tolist()
    assert dataset.describe().notes[:2] == (
        "1 of 5 train articles cut at 64 tokens",
        "2 of 5 train summaries cut at 16 tokens",
    )
    assert dataset.split("test", KEY).notes == (
        "1 of 5 test articles cut at 64 tokens",
        "2 of 5 test summaries cut at 16 tokens",
    )


BAD = {
    "not JSON": ('{"article": "a", ', r"not JSON: "),
    "a list": ("[1]", r"a row must be a JSON object, not list"),
    "no summary": ({"article": "a"}, r"no field 'abstract'; the row holds \['article'\]"),
    "empty article": ({"article": " \n", "abstract": "a"}, r"'article' is empty"),
    "headings only": ({"article": "RESULTS\n", "abstract": "a"}, r"'article' is empty"),
    "no sentences": ({**COHAN, "article_text": []}, r"'article_text' is empty"),
    "a number": (
        {"article": 0, "abstract": "a"},
        r"'article' must be a text, or a list of texts.*; got 0$",
    ),
    "null": ({"article": "a", "abstract": [None]}, r"'abstract' must be a text.*; got null"),
    "half a pair": (
        '{"article": "\\ud800", "abstract": "a"}',
        r"'article' holds half a surrogate pair",
    ),
    "titles": ({**COHAN, "section_names": 3}, r"'section_names' must be a text.*; got 3"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", ["train.jsonl", "test.jsonl"])
def test_bad_lines_are_refused_or_counted(make, tmp_path, bad: str, name: str):
    row, message = BAD[bad]
    write(tmp_path / "data", SUMPUBMED)
    write(tmp_path / "data", SUMPUBMED, row, COHAN, names=(name,))
    with pytest.raises(DataError, match=rf"{name.replace('.', '[.]')}:2: {message}"):
        make().prepare()
    assert not list((tmp_path / "root").rglob("*.part"))
    dataset = make(skip_bad=True)
    part = name.partition(".")[0]
    split = dataset.split(part, KEY)
    notes = split.notes if part == "test" else dataset.describe().notes
    assert len(split) == 2
    assert notes[0].startswith(f"1 lines of {name} left out, the first is {name}:2: ")
    again = make(skip_bad=True)
    assert again.describe().notes == dataset.describe().notes


def test_bad_folders(make, tmp_path):
    with pytest.raises(
        DataError, match=r"dataset\.params\.path: .*data has no train\.jsonl or train\.txt"
    ):
        make().prepare()
    with pytest.raises(DataError, match=r"dataset\.params\.path: .*none is not a folder"):
        make(path=str(tmp_path / "none")).prepare()
    write(tmp_path / "data", SUMPUBMED, names=("train.jsonl", "test.jsonl"))
    with pytest.raises(
        DataError,
        match=r"has train\.jsonl, test\.jsonl, but no file for validation, such as validation",
    ):
        make().prepare()
    write(tmp_path / "data", "{", names=("val.jsonl",))
    with pytest.raises(DataError, match=r"val\.jsonl:1: no articles \(1 lines left out\)"):
        make(skip_bad=True).prepare()
    write(tmp_path / "data", {"article": "a", "abstract": "b"})
    with pytest.raises(
        DataError,
        match=r"dataset\.params\.titles: no article of TRAIN has section titles; use titles=f",
    ):
        make(titles=True).describe()


def test_the_tokenizer_is_learnt_on_train_alone(make, tmp_path):
    row = {"article": "the cell the cell", "abstract": "the cell"}
    write(tmp_path / "data", *[row] * 5, names=("train.jsonl",))
    write(
        tmp_path / "data",
        {"article": "zebra " * 9, "abstract": "zebra"},
        names=("val.jsonl", "test.jsonl"),
    )
    dataset = make(tokenizer="bpe", vocab_size=300)
    assert texts(dataset)[0]["reference"] == "zebra"
    pieces = set(dataset.describe().text.pieces)
    assert b" cell" in pieces
    assert not any(len(piece) > 1 and b"z" in piece for piece in pieces)


@pytest.mark.ci
def test_lead_3_by_hand(make, tmp_path):
    row = {
        "article": "RESULTS\na cell. Two cells!\nthird one\nfour five. six",
        "abstract": "cells four",
    }
    write(tmp_path / "data", row)
    dataset = make()
    test = dataset.split("test", KEY)
    scores = dataset.reference_scores(test)["lead-3"]
    precision, recall = 1 / 8, 1 / 2  # "a cell two cell third in te one" has 8 words, the summary 2
    means = {"rouge1": 2 * precision * recall / (precision + recall), "rouge2": 0, "rougeL": 0.2}
    # of one article
    ends = {f"{name}{end}": value for name, value in means.items() for end in ("_low", "_high")}
    assert scores == pytest.approx({**means, **ends})
    (kept,) = [path for path in (tmp_path / "root" / "guesses").iterdir() if path.is_dir()]
    assert (
        dataset.reference_scores(test) == json.loads((kept / "manifest.json").read_text())["facts"]
    )


@pytest.mark.ci
def test_the_constant_text_is_chosen_on_train_alone(make, tmp_path):
    from rouge_score.rouge_scorer import RougeScorer

    train = {"article": "one .", "abstract": "the cell of the rat and the gene of the mouse"}
    write(tmp_path / "data", *[train] * 3, names=("train.jsonl",))
    write(
        tmp_path / "data",
        {"article": "two .", "abstract": "zebra zebra zebra"},
        names=("val.jsonl",),
    )
    test = {"article": "three .", "abstract": "the zebra of the desert"}
    write(tmp_path / "data", test, {**test, "abstract": "zebra"}, names=("test.jsonl",))
    dataset = make()
    found = dataset.reference_scores(dataset.split("test", KEY))["constant text"]
    words = constant_words([train["abstract"]] * 3)
    assert (
        found["note"]
        == f"{' '.join(dict.fromkeys(words))!r} repeated to {len(words)} words, from TRAIN"
    )
    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    scores = [
        scorer.score(target, " ".join(words))["rougeL"].fmeasure
        for target in (test["abstract"], "zebra")
    ]
    assert found["rougeL"] == pytest.approx(np.mean(scores))
    assert found["rougeL_low"] < found["rougeL"] < found["rougeL_high"]
    assert found["rougeL_low"] == 0.0, (
        "of two articles, one with a score of 0, the normal interval goes below"
    )


@pytest.mark.ci
def test_the_constant_text_wins_more_than_any_other_of_its_kind():
    from rouge_score.rouge_scorer import RougeScorer

    summaries = [
        "the rat of the lab",
        "the gene of the cell and the rat",
        "a cell in the lab of the rat",
    ]
    best = constant_words(summaries)
    scorer = RougeScorer(["rougeL"], use_stemmer=True)

    def score(words: list[str]) -> float:
        text = " ".join(words)
        return float(
            np.mean([scorer.score(summary, text)["rougeL"].fmeasure for summary in summaries])
        )

    frequent = ["the", "rat", "of", "lab", "cell", "gene", "and", "a", "in"]
    others = [
        (frequent[:number] * 11)[:length] for number in range(1, 10) for length in range(number, 11)
    ]
    assert best[:2] == ["the", "rat"]
    assert score(best) == pytest.approx(max(map(score, others)))
    assert constant_words([]) == constant_words(["", "..."]) == []


def test_sentences():
    assert first_sentences("One. Two? 1.5 is three!\nfour") == "One.\nTwo?\n1.5 is three!"
    assert first_sentences("a\n\nb") == "a\nb"


def test_without_rouge_score(make, tmp_path, monkeypatch):
    write(tmp_path / "data", SUMPUBMED)
    dataset = make()
    monkeypatch.setattr("subquad_datasets.summarization.guesses.find_spec", lambda name: None)
    assert dataset.reference_scores(dataset.split("test", KEY)) == {}


def test_files_of_a_user(make, tmp_path):
    write(tmp_path / "data", SUMPUBMED)
    dataset = make()
    write(tmp_path, {"article": "one ."}, {"article": "two .", "abstract": 3}, names=("new.jsonl",))
    found = everything(dataset.open_file(tmp_path / "new.jsonl", labelled=False))
    assert texts_of(dataset, found) == ["one .", "two ."]
    assert (found["labels"] == NO_LABEL).all()
    assert found["reference"].tolist() == [[0], [0]]
    with pytest.raises(
        DataError, match=r"new\.jsonl:1: no field 'abstract'; the row holds \['article'\]"
    ):
        dataset.open_file(tmp_path / "new.jsonl", labelled=True)
    write(tmp_path, SUMPUBMED, names=("new.jsonl",))
    split = dataset.open_file(tmp_path / "new.jsonl", labelled=True)
    assert (everything(split)["labels"] == 1).sum() == 0
    assert len(split) == 1
    assert "1 of 1 new.jsonl summaries cut" in " ".join(split.notes)


def test_articles_are_read_one_by_one(make, tmp_path, monkeypatch):
    """No more than about a MiB of text is held: what is encoded at once does not grow with the
    file.
    """
    from subquad_datasets.tokenizer import ByteTokenizer

    row = {"article": "x" * 100_000, "abstract": "y"}
    write(tmp_path / "data", *[row] * 50, names=("train.jsonl",))
    write(tmp_path / "data", SUMPUBMED, names=("val.jsonl", "test.jsonl"))
    held: list[int] = []
    real = ByteTokenizer.encode

    def counted(self: ByteTokenizer, texts: Any) -> Any:
        held.append(sum(map(len, texts)))
        return real(self, texts)

    monkeypatch.setattr(ByteTokenizer, "encode", counted)
    make().prepare()
    assert sum(held) > 5_000_000
    assert max(held) < 1_200_000


def test_generated(tmp_path):
    sizes = {"train_size": 5, "validation_size": 2, "test_size": 3}
    lengths = {"max_source": 1024, "max_target": 200}
    dataset = dataset_of("pubmed-summarization", tmp_path, **sizes, **lengths, titles=True)
    assert dataset.describe().notes == ("stand-in data: generated articles of invented words",)
    found = [text for name in ("train", "validation", "test") for text in texts(dataset, name)]
    assert len({sample["inputs"] for sample in found}) == 10
    for sample in found:
        lines = sample["inputs"].split("\n")
        assert len(lines) == 12
        assert sample["labels"] == sample["reference"] == f"{lines[6]}\n{lines[9]}"


def test_a_tokenizer_that_loses_words_is_refused():
    told = "tokenizer word loses unknown words, also of references: use byte or bpe"
    with pytest.raises(ValidationError, match=told):
        Config(tokenizer="word")


@of_real_data
def test_sumpubmed_itself(tmp_path):
    path = str(REAL_DATA / "pubmed_sumpubmed")
    dataset = dataset_of("pubmed-summarization", tmp_path, path=path, titles=True)
    dataset.prepare()
    assert dataset.describe().sizes == {"train": 6456, "validation": 709, "trainval": 7165}
    test = dataset.split("test", KEY)
    assert len(test) == 620
    assert check_copies(dataset, test, validation=True) == ()
    scores = dataset.reference_scores(test)["lead-3"]
    assert scores == pytest.approx({"rouge1": 0.2095, "rouge2": 0.0542, "rougeL": 0.1250}, abs=1e-4)


@pytest.mark.ci
def test_guesses_of_texts_in_another_script(make, tmp_path):
    row = {"article": "Ген клетки. Это мышь! Третье. Четвёртое.", "abstract": "ген клетки мышь"}
    write(tmp_path / "data", row)
    dataset = make()
    scores = dataset.reference_scores(dataset.split("test", KEY))
    assert scores["lead-3"]["rouge1"] == pytest.approx(2 * 3 / (5 + 3))
    assert scores["constant text"]["rougeL"] == 1.0
    assert first_sentences("一。二！三？四。") == "一。\n二！\n三？"
    assert first_sentences("एक। दो। तीन। चार।") == "एक।\nदो।\nतीन।"
