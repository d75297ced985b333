"""Language modelling: loss and sums over tokens, metrics worked out by hand, continuations."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from tables import TableDecoder

from subquad.data import NO_LABEL, DataSpec
from subquad.errors import DataError, PluginError
from subquad.nn import TokenScores, token_scores
from subquad_plugins.language_modeling import PLUGIN, Config
from subquad_plugins.language_modeling.task import LanguageModeling

VOCABULARY = 6


def task(token_bytes=(0, 1, 2, 3, 4, 0), **params) -> LanguageModeling:
    spec = DataSpec.tokens(
        40, VOCABULARY, target="next-token", token_bytes=token_bytes, end_token=5
    )
    return LanguageModeling(Config(**params), spec)


def case():
    torch.manual_seed(0)
    hidden, weight = torch.randn(3, 5, 4), torch.randn(VOCABULARY, 4, requires_grad=True)
    labels = torch.randint(1, VOCABULARY, (3, 5))
    labels[0, 3:] = labels[2] = NO_LABEL
    return token_scores(hidden, weight, labels), {"labels": labels}, (hidden @ weight.T), weight


def test_loss_is_that_of_cross_entropy_and_its_weight_the_labelled_tokens():
    scores, batch, logits, weight = case()
    real = batch["labels"] != NO_LABEL
    for smoothing in (0.0, 0.2):
        smoothed = task(label_smoothing=smoothing)
        loss, count = smoothed.loss(scores, batch)
        expected = F.cross_entropy(
            logits[real], batch["labels"][real], reduction="sum", label_smoothing=smoothing
        )
        torch.testing.assert_close(loss, expected)
        torch.testing.assert_close(
            *(torch.autograd.grad(each, weight, retain_graph=True)[0] for each in (loss, expected))
        )
        assert float(count) == smoothed.weight(batch) == 8.0


def test_micro_batches_give_the_gradient_of_the_whole():
    """Token by token: the parts have 3, 5 and no labels."""
    scores, batch, _, weight = case()
    smoothed = task(label_smoothing=0.1)
    whole = torch.autograd.grad(
        smoothed.loss(scores, batch)[0] / smoothed.weight(batch), weight, retain_graph=True
    )[0]
    total = torch.zeros_like(weight)
    for row in range(3):
        part = TokenScores(*(each[row : row + 1] for each in scores))
        loss, _ = smoothed.loss(part, {"labels": batch["labels"][row : row + 1]})
        total += torch.autograd.grad(loss / smoothed.weight(batch), weight, retain_graph=True)[0]
    torch.testing.assert_close(total, whole)


def test_metrics_are_of_tokens_and_bytes_without_smoothing():
    labels = torch.tensor([[1, 2, NO_LABEL], [4, 5, 3]])
    loss = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.25, 0.25]])
    scores = TokenScores(loss, 100 * loss, torch.tensor([[1, 1, NO_LABEL], [4, 5, 0]]))
    smoothed = task(label_smoothing=0.5)
    sums = smoothed.sums(scores, {"labels": labels})
    assert {name: (rows.dtype, rows.item()) for name, rows in sums.items()} == {
        "loss": (torch.float64, 4.0),
        "tokens": (torch.int64, 5),
        "hits": (torch.int64, 3),
        "bytes": (torch.int64, 10),
    }
    found = smoothed.metrics(sums)
    assert found == pytest.approx(
        {
            "loss": 0.8,
            "perplexity": math.exp(0.8),
            "token_accuracy": 0.6,
            "bits_per_byte": 0.4 / math.log(2),
        }
    )
    kept = smoothed.per_sample(scores, {"labels": labels})
    assert all(rows.shape == (2,) for rows in kept.values())
    assert smoothed.rescore(kept) == found
    assert "bits_per_byte" not in task(()).metrics(task(()).sums(scores, {"labels": labels}))
    with pytest.raises(ValueError, match="a sample has more hits than tokens"):
        smoothed.rescore(kept | {"hits": torch.tensor([3, 0])})


def test_without_a_label_there_is_no_number():
    nothing = torch.full((2, 3), NO_LABEL)
    scores = TokenScores(torch.zeros(2, 3), torch.zeros(2, 3), nothing)
    assert all(map(math.isnan, task().metrics(task().sums(scores, {"labels": nothing})).values()))
    assert task().weight({"labels": nothing}) == 0.0


def test_continuations_are_greedy_or_drawn():
    model = TableDecoder(
        torch.randn(2, 40, VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(1))
    )
    batch = {"inputs": torch.tensor([[0], [1]]), "keep": torch.ones(2, 1, dtype=torch.bool)}
    greedy = task(max_new_tokens=20).decode(model, batch)["text"]
    assert greedy.shape == (2, 20)
    drawn = [
        task(max_new_tokens=20, temperature=2.0, sampling_seed=seed).decode(model, batch)["text"]
        for seed in (0, 0, 1)
    ]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    cold = task(max_new_tokens=20, temperature=1e-6).decode(model, batch)["text"]
    assert torch.equal(cold, greedy)
    assert task(max_new_tokens=None).decode(model, batch)["text"].shape == (2, 40)


class Remembering(TableDecoder):
    """What comes next follows from all tokens before it, of which there may be six."""

    def start(self, batch):
        lengths = batch["keep"].sum(1).tolist()
        texts = [
            row[:length] for row, length in zip(batch["inputs"].tolist(), lengths, strict=True)
        ]
        self.seen = [(*text,) for text in texts]
        state = torch.tensor([self.number(text) for text in texts])
        return self.logits_of(state), (state, batch["keep"].sum(1)), None

    def number(self, text):
        return sum((place + 1) * token for place, token in enumerate(text))

    def logits_of(self, state):
        return 5 * torch.sin(state[:, None] * (1.0 + torch.arange(VOCABULARY)))

    def step(self, tokens, state, memory):
        number, lengths = state
        assert int(lengths.max()) < 6
        state = number + (lengths + 1) * tokens, lengths + 1
        return self.logits_of(state[0]), state


def test_a_long_continuation_goes_on_from_the_newer_half():
    """Samples of 2 and 6 tokens; as soon as one of them has 7, each reads its last 3 again."""
    spec = DataSpec.tokens(6, VOCABULARY, target="next-token")
    writer = LanguageModeling(Config(max_new_tokens=20), spec)
    model = Remembering(torch.zeros(1))
    texts = [[1, 2], [5, 4, 3, 2, 1, 1]]
    inputs = torch.tensor([[*text, *[0] * (6 - len(text))] for text in texts])
    found = writer.decode(model, {"inputs": inputs, "keep": inputs > 0})["text"]
    read = [list(text) for text in texts]
    for step in range(20):
        numbers = torch.tensor([model.number(text) for text in read])
        chosen = 1 + model.logits_of(numbers)[:, 1:].argmax(1)
        assert found[:, step].tolist() == chosen.tolist()
        read = [[*text, int(token)] for text, token in zip(read, chosen, strict=True)]
        if max(map(len, read)) > 6:
            read = [text[-3:] for text in read]


def test_refusals():
    with pytest.raises(
        DataError, match="labels are tokens, which this data set has none of: its vocab_size is 0"
    ):
        LanguageModeling(Config(), DataSpec.series(4, 1))
    with pytest.raises(
        DataError,
        match="labels are to be tokens, and this data set's are of target 'class': use one that",
    ):
        LanguageModeling(Config(), DataSpec.tokens(4, 9))
    with pytest.raises(
        PluginError, match=r"outputs must be TokenScores of labels of shape \(2, 3\), got Tensor"
    ):
        task().loss(torch.zeros(2, 3), {"labels": torch.zeros(2, 3, dtype=torch.long)})  # type: ignore[arg-type]
    with pytest.raises(
        PluginError, match=r"backbone Linear cannot write: it is no subquad\.nn\.Decoder"
    ):
        task().decode(torch.nn.Linear(1, 1), {})  # type: ignore[arg-type]
    assert (PLUGIN.metric, PLUGIN.mode, PLUGIN.targets) == ("perplexity", "min", ("next-token",))
