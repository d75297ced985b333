"""Summarization: ROUGE of what is written, its intervals, and what verification recomputes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from tables import TableDecoder

from subquad.data import NO_LABEL, Array, DataSpec
from subquad.errors import ConfigError, DataError
from subquad.nn import ModelOutput, TokenScores
from subquad.rouge import ROUGE, SCORES, rouge
from subquad_plugins.summarization import PLUGIN, Config
from subquad_plugins.summarization.diversity import distinct, length_ratio, repetition, words_of
from subquad_plugins.summarization.intervals import mean_intervals
from subquad_plugins.summarization.task import Summarization

WORDS = ("", "patients", "treated", "improved", "placebo", "")
END = 5


def text(ids) -> str:
    return " ".join(WORDS[id] for id in ids if id not in (0, END))


def spec(**more) -> DataSpec:
    arrays = {"reference": Array(("reference",), "int64")}
    known = {
        "arrays": arrays,
        "lengths": {"target": 4, "reference": 6},
        "text": text,
        "end_token": END,
    }
    return DataSpec.tokens(3, len(WORDS), target="sequence", **{**known, **more})


class Scored(TableDecoder):
    """Says of each label that it costs 0.5 nats."""

    def forward(self, batch):
        real = batch["labels"] != NO_LABEL
        loss = torch.where(real, 0.5, 0.0)
        return ModelOutput(TokenScores(loss, loss, batch["labels"]))


def case():
    """Two documents; what the model writes of them is 1 2 END and 3 3 3 3."""
    logits = torch.zeros(2, 4, 6, 6)
    for document, written in enumerate(((1, 2, END, 1), (3, 3, 3, 3))):
        for place, token in enumerate(written):
            logits[document, place, :, token] = 9.0
    labels = torch.tensor([[1, 2, END, NO_LABEL], [3, 4, 1, END]])
    reference = torch.tensor([[1, 2, 4, 0, 0, 0], [3, 4, 1, 4, 1, 2]])
    return Scored(logits), {
        "inputs": torch.tensor([[0], [1]]),
        "labels": labels,
        "reference": reference,
    }


@pytest.fixture
def scored(monkeypatch):
    """Without rouge-score, whose import takes seconds: unigram overlap of the texts as every one
    of the scores.
    """

    def overlap(answers, references):
        rows = [
            len({*answer.split()} & {*reference.split()}) / 10
            for answer, reference in zip(answers, references, strict=True)
        ]
        return np.repeat(np.array(rows)[:, None], len(SCORES), 1)

    monkeypatch.setattr("subquad_plugins.summarization.task.rouge", overlap)


def test_only_the_final_evaluation_writes(scored):
    model, batch = case()
    task = Summarization(Config(beam_width=2), spec())
    sums, rows = task.evaluate(model, batch, final=False)
    assert task.metrics(sums) == pytest.approx(
        {"loss": 0.5, "perplexity": np.exp(0.5), "token_accuracy": 1.0}
    )
    assert not rows.keys() & set(ROUGE)
    again, rows = task.evaluate(model, batch, final=True)
    assert again == sums
    assert all(rows[name].tolist() == [0.2, 0.1] for name in SCORES)
    assert all(len(row) == 2 for row in rows.values())
    assert rows["rougeL"].dtype == torch.float64
    assert rows["text"].tolist() == [[1, 2, END, 0], [3, 3, 3, 3]]
    assert torch.equal(rows["reference"], batch["reference"].short())
    assert task.examples(rows) == [
        ("patients treated placebo", "patients treated"),
        (
            "improved placebo patients placebo patients treated",
            "improved improved improved improved",
        ),
    ]


def test_the_summaries_are_those_of_the_search():
    model, batch = case()
    assert Summarization(Config(), spec()).decode(model, batch)["text"].tolist() == [
        [1, 2, END, 0],
        [3, 3, 3, 3],
    ]
    held = Summarization(Config(no_repeat_ngram=1, max_new_tokens=2), spec()).decode(model, batch)[
        "text"
    ]
    assert held.shape == (2, 2)
    assert held[1, 0] != held[1, 1]


def test_rescoring_gives_means_and_intervals_and_does_not_depend_on_ranks(scored):
    task, rng = Summarization(Config(), spec()), np.random.default_rng(0)
    counts = {name: torch.full((40,), 3) for name in ("tokens", "hits")}
    kept = {name: torch.from_numpy(rng.random(40)) for name in ("loss", *SCORES)} | counts
    kept |= {name: torch.tensor([[1, 2, 3, 4]] * 40) for name in ("text", "reference")}
    found = task.rescore(kept)
    assert found == task.rescore({name: rows.clone() for name, rows in kept.items()})
    for name in SCORES:
        assert found[name] == pytest.approx(float(kept[name].mean()))
    for name in ROUGE:
        assert found[f"{name}_low"] < found[name] < found[f"{name}_high"]
    assert found["loss"] == pytest.approx(float(kept["loss"].sum()) / 120)
    with pytest.raises(ValueError, match=r"ROUGE must lie in \[0, 1\]"):
        task.rescore(kept | {"rouge1": torch.full((40,), 1.5, dtype=torch.float64)})


def kept_of(texts: list[list[int]], references: list[list[int]]) -> dict[str, torch.Tensor]:
    """What an evaluation of these token ids keeps, as far as texts are concerned."""
    return {"text": torch.tensor(texts), "reference": torch.tensor(references)}


TARGETS = [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3]]


REPEATED, SAME = "more than 50 % of a text's 4-grams", "more than 50 % of them are the same text"
FEW, SHORT, LONG = "distinct-2 is below 25 %", "less than a fifth as long", "five times as long"


@pytest.mark.parametrize(
    ("texts", "reasons"),
    [
        (TARGETS, []),
        ([[4, 1, 3, 2], [2, 1, 4, 0], [3, 1, 2, 0]], []),
        ([[1, 2, 3, 4], [1, 2, 3, 4], [2, 1, 4, 0]], [SAME]),
        ([[1, 1, 1, 1, 1, 1]] * 3, [SAME, REPEATED, FEW]),
        ([[1, 0], [2, 0], [0, 0]], [FEW, SHORT]),
        ([[0, 0]] * 3, [SAME, FEW, SHORT]),
        ([[1, 2, 3, 4, 2, 1, 4, 3, 1, 3, 2, 4, 1], [2] * 13, [3, 1] * 6 + [2]], [REPEATED]),
        ([[1, 2, 3, 4, 4, 3, 2, 1, 1, 3] * 2 + [1], [2] * 21, [4] * 21], [REPEATED, FEW, LONG]),
    ],
)
def test_degenerate_texts_are_remarked(texts: list[list[int]], reasons: list[str]):
    remarks = Summarization(Config(), spec()).remarks(kept_of(texts, TARGETS))
    found = [reason for remark in remarks for reason in remark.split("; ")]
    assert len(found) == len(reasons)
    assert all(reason in part for part, reason in zip(found, reasons, strict=True))


def test_one_document_alone_is_not_the_same_as_others():
    task = Summarization(Config(), spec())
    assert task.remarks(kept_of(TARGETS[:1], TARGETS[:1])) == []


def test_diversity_by_hand():
    given = ["The cat, the cat!", "the DOG 7", ""]
    texts = words_of(given, given)
    assert texts == [["the", "cat", "the", "cat"], ["the", "dog", "7"], []]
    assert distinct(texts, 1) == 4 / 7
    assert distinct(texts, 2) == 4 / 5, "the cat, cat the, the dog, dog 7"
    assert (distinct([[]], 1), distinct([], 2)) == (0.0, 0.0)
    assert repetition([["a", "b"] * 4, ["c", "d"]]) == (1 - 2 / 5) / 2
    assert repetition([]) == 0.0
    assert length_ratio(texts, [["a"] * 14]) == 0.5
    assert length_ratio(texts, [[]]) == 7.0


def test_intervals_cover_the_mean_of_a_skewed_score_as_often_as_they_say():
    """1,000 sets of 100 documents, drawn apart; the mean of this beta distribution is 1/4."""
    scores = np.random.default_rng(1).beta(1.5, 4.5, size=(100, 1000))
    low, high = mean_intervals(scores)
    assert 0.93 <= ((low <= 0.25) & (high >= 0.25)).mean() <= 0.97
    np.testing.assert_array_equal(mean_intervals(scores[:, :3]), [low[:3], high[:3]])
    assert (mean_intervals(scores[:, :1], seed=1) != [low[:1], high[:1]]).all()


def test_refusals(monkeypatch):
    needs = "task summarization needs reference texts, which this data set does not give"
    for wrong in (spec(text=None), spec(arrays={})):
        with pytest.raises(DataError, match=needs):
            Summarization(Config(), wrong)
    with pytest.raises(
        ConfigError, match=r"task\.params\.max_new_tokens: got 5, the model learns 4 tokens"
    ):
        Summarization(Config(max_new_tokens=5), spec())
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    with pytest.raises(ConfigError, match=r"needs rouge-score: pip install 'subquad\[text\]'"):
        Summarization(Config(), spec())
    shown = ["distinct1", "distinct2", "repetition", "length_ratio"]
    assert list(PLUGIN.tested) == ["rougeL", "rouge1", "rouge2", *shown]


@pytest.mark.ci
def test_words_are_those_of_rouge_score():
    from rouge_score.tokenizers import DefaultTokenizer

    texts = ["The patients improved.", "", "p<dig> 5-HT_2 (µg/ml)", "Ünïcode Straße 5", "a\nb"]
    tokenizer = DefaultTokenizer(use_stemmer=False)
    assert words_of(texts, texts) == [tokenizer.tokenize(text) for text in texts]


@pytest.mark.ci
def test_rouge_is_that_of_rouge_score():
    from rouge_score.rouge_scorer import RougeScorer

    answers = [
        "The patients improved.",
        "",
        "a b c d e f g",
        "Treatment, treated; treats!",
        "the µ-opioid результат 5",
    ]
    references = [
        "Patients showed improvement",
        "reference",
        "g f e d c b a",
        "treat the treatments",
        "5 результат of treated µ-opioids",
    ]
    found = rouge(answers, references)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    for row, answer, reference in zip(found, answers, references, strict=True):
        scores = scorer.score(target=reference, prediction=answer)
        parts = {"_precision": "precision", "_recall": "recall", "": "fmeasure"}
        expected = [getattr(scores[name], part) for name in ROUGE for part in parts.values()]
        assert row.tolist() == expected
        assert tuple(name + part for name in ROUGE for part in parts) == SCORES
    assert rouge([], []).shape == (0, 9)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("reference", "answer", "scores"),
    [
        (
            "Ген BRCA1 клетки: мышь.",
            "мышь, ГЕН",
            [1.0, 0.5, 2 / 3, 0.0, 0.0, 0.0, 0.5, 0.25, 1 / 3],
        ),
        ("कोशिका में जीन", "कोशिका में", [1.0, 2 / 3, 0.8, 1.0, 0.5, 2 / 3, 1.0, 2 / 3, 0.8]),
        ("基因表达。", "基因A", [2 / 3, 0.5, 4 / 7, 0.5, 1 / 3, 0.4, 2 / 3, 0.5, 4 / 7]),
        ("γονίδιο", "gene", [0.0] * 9),
        ("5 %", "5", [1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]),
    ],
)
def test_rouge_of_any_script_by_hand(reference, answer, scores):
    assert rouge([answer], [reference])[0].tolist() == pytest.approx(scores)


def test_words_of_another_script_are_told():
    task = Summarization(Config(), spec())
    kept = kept_of(TARGETS, TARGETS)
    assert not any("any script" in remark for remark in task.remarks(kept))
    task._text = lambda ids: "мышь" if ids[0] == kept["reference"][0, 0] else "mouse"
    assert task.remarks(kept)[-1].endswith(
        "references are mostly in other letters than a to z: their ROUGE counts words of any "
        "script, without a stemmer"
    )
