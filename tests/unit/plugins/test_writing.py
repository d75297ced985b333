"""Beam search: what it finds is the best of all texts, however samples are batched; greedy,
blocking, draws.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import TableDecoder, exhaustive

from subquad_plugins.language_modeling.beam_search import Rules, beam_search, drawing

VOCABULARY, END, LONGEST = 4, 3, 4


def tables(
    seed: int, vocabulary: int = VOCABULARY, longest: int = LONGEST, scale: float = 2.0
) -> torch.Tensor:
    """Of three documents."""
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(3, longest, vocabulary, vocabulary, generator=generator)


def batch_of(*documents: int) -> dict[str, torch.Tensor]:
    return {"inputs": torch.tensor(documents)[:, None]}


def ids(text: torch.Tensor) -> tuple[int, ...]:
    return tuple(token for token in text.tolist() if token)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.5, 2.0, 6.0]),
    penalty=st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]),
    longest=st.integers(1, LONGEST),
    least=st.integers(0, 2),
)
def test_a_wide_beam_finds_the_best_of_all_texts(seed, scale, penalty, longest, least):
    logits = tables(seed, scale=scale)
    rules = Rules(END, longest, least)
    found = beam_search(
        TableDecoder(logits), batch_of(0, 1, 2), rules, width=27, length_penalty=penalty
    )
    assert found.text.shape == (3, longest)
    for document in range(3):
        every = exhaustive(logits[document], END, longest, penalty, least)
        best = max(every, key=every.__getitem__)
        assert float(found.score[document]) == pytest.approx(every[best], abs=1e-12)
        assert ids(found.text[document]) == best


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 4),
    penalty=st.sampled_from([-0.5, 0.0, 1.0, 2.0]),
)
def test_documents_of_a_batch_do_not_see_each_other(seed, width, penalty):
    """They end at different lengths; a narrow beam prunes, so this is not the exhaustive search
    again.
    """
    model, rules = TableDecoder(tables(seed, longest=8)), Rules(END, 8)
    together = beam_search(model, batch_of(0, 1, 2), rules, width=width, length_penalty=penalty)
    for document in range(3):
        alone = beam_search(model, batch_of(document), rules, width=width, length_penalty=penalty)
        assert torch.equal(alone.text[0], together.text[document])
        assert alone.score[0] == together.score[document]


def greedily(logits: torch.Tensor, longest: int) -> tuple[int, ...]:
    text = [0, 0]
    while len(text) - 2 < longest and text[-1] != END:
        text.append(1 + int(logits[len(text) - 2, (text[-1] + text[-2]) % VOCABULARY, 1:].argmax()))
    return tuple(text[2:])


def test_a_beam_of_one_is_greedy():
    for seed in range(20):
        logits = tables(seed, longest=6)
        found = beam_search(TableDecoder(logits), batch_of(0, 1, 2), Rules(END, 6))
        assert [ids(text) for text in found.text] == [greedily(logit, 6) for logit in logits]


def test_a_narrow_beam_is_no_better_than_a_wide_one_and_pads_with_zeros():
    model, rules = TableDecoder(tables(7)), Rules(END, LONGEST)
    scores = [
        beam_search(model, batch_of(0, 1, 2), rules, width=width).score for width in (1, 2, 27)
    ]
    assert all((scores[-1] >= score).all() for score in scores)
    assert not torch.equal(scores[0], scores[-1])
    text = beam_search(model, batch_of(0, 1, 2), rules, width=2).text
    ended = (text == END).cumsum(1) - (text == END).long() > 0
    assert not text[ended].any()
    assert text[~ended].all()


def test_the_search_stops_when_no_beam_can_win():
    """The end at once has log p -0.01 and nothing that comes later can reach it: one look at the
    model is enough.
    """
    logits = torch.full((1, 50, 4, 4), -20.0)
    logits[..., END] = 5.0
    model, steps = TableDecoder(logits), []
    stepped = model.step
    model.step = lambda *given: steps.append(1) or stepped(*given)  # type: ignore[method-assign]
    for penalty, most in ((0.0, 0), (-1.0, 0), (1.0, 3)):
        steps.clear()
        assert ids(
            beam_search(model, batch_of(0), Rules(END, 50), width=3, length_penalty=penalty).text[0]
        ) == (END,)
        assert len(steps) <= most


def test_of_equals_the_smaller_tokens_and_the_shorter_text_are_taken():
    model = TableDecoder(torch.zeros(1, LONGEST, VOCABULARY, VOCABULARY))
    written = beam_search(model, batch_of(0), Rules(END, LONGEST), width=3, length_penalty=1.0)
    assert ids(written.text[0]) == (END,)  # all texts have the same mean of log p
    assert ids(beam_search(model, batch_of(0), Rules(0, LONGEST), width=3).text[0]) == (1, 1, 1, 1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_run_of_tokens_comes_twice(size):
    logits = tables(3, vocabulary=5, longest=12)
    model = TableDecoder(logits)
    free = beam_search(model, batch_of(0, 1, 2), Rules(0, 12), width=3).text
    held, scores = beam_search(model, batch_of(0, 1, 2), Rules(0, 12, 0, size), width=3)
    runs = [
        [ids(text)[start : start + size] for start in range(len(ids(text)) - size + 1)]
        for text in held
    ]
    assert all(len(set(run)) == len(run) for run in runs)
    assert not torch.equal(free, held)
    if size == 1:  # four tokens, then nothing is allowed
        assert sorted(ids(held[0])) == [1, 2, 3, 4]
        assert float(scores[0]) == pytest.approx(
            exhaustive(logits[0], 0, 4, 1.0)[ids(held[0])], abs=1e-12
        )


def test_draws_follow_temperature_top_k_and_seed():
    logits = torch.tensor([0.0, 1.0, 2.0, 3.0]).expand(1, 1, 4, 4)
    model, many = TableDecoder(logits), batch_of(*[0] * 4000)

    def drawn(temperature: float, top_k: int = 0, seed: int = 0) -> torch.Tensor:
        text = beam_search(model, many, Rules(0, 1), draw=drawing(temperature, top_k, seed)).text[
            :, 0
        ]
        return torch.bincount(text, minlength=4) / 4000

    expected = torch.tensor([-torch.inf, 1.0, 2.0, 3.0])
    for temperature in (1.0, 2.0):
        torch.testing.assert_close(
            drawn(temperature), (expected / temperature).softmax(0), atol=0.03, rtol=0
        )
    assert drawn(1.0, top_k=2)[:2].tolist() == [0.0, 0.0]
    assert drawn(1.0, top_k=2)[2] == pytest.approx(1 / (1 + torch.e), abs=0.03)
    assert torch.equal(drawn(1.0), drawn(1.0))
    assert not torch.equal(drawn(1.0), drawn(1.0, seed=1))


@pytest.mark.parametrize(
    ("penalty", "first", "then", "best"),
    [(3.0, -0.1, -0.05, (1, 1, 1, END)), (-1.0, -1.22, -0.02, (1, END))],
)
def test_a_beam_is_kept_as_long_as_it_may_win(penalty, first, then, best):
    """The end at once, of log p `first`, is beaten by 1 with the rest of the chance and what
    comes after it.
    """
    logits = torch.full((1, 4, 4, 4), -40.0)
    end = math.exp(first)
    logits[0, 0, 0, [1, END]] = torch.tensor([math.log(1 - end), first])
    chosen = [1, 1, END] if penalty > 0 else [END, END, END]
    for place, token in enumerate(chosen, 1):
        logits[0, place, :, token] = then
        logits[0, place, :, 3 - token if token == 1 else 1] = math.log(1 - math.exp(then))
    found = beam_search(
        TableDecoder(logits), batch_of(0), Rules(END, 4), width=4, length_penalty=penalty
    )
    assert ids(found.text[0]) == best
