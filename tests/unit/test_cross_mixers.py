"""Token mixers and cores that let one sequence see another: what is built once gives what
`forward` gives.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

import subquad
from subquad.errors import ConfigError
from subquad_check import check_mixer

PLUGINS = Path(__file__).parents[1] / "support" / "third_party"
MIXERS = [f"{PLUGINS}/third_mixer.py:Mean", f"{PLUGINS}/third_core.py:LinearAttention", "softmax"]


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", MIXERS, ids=["token mixer", "core", "softmax"])
def test_memory_built_once_and_steps_equal_the_whole_sequence(name):
    mixer = subquad.mixer(name, dim=8, num_heads=2, role="cross").double()
    x, context = draw(3, 6, 8), draw(3, 9, 8, seed=1)
    keep = torch.arange(9) < torch.tensor([[9], [4], [1]])
    whole = mixer(x, context=context, context_keep=keep)
    assert mixer.caches
    memory = mixer.memory(context, keep=keep)
    out, cache = mixer.prefill(x[:, :2], memory=memory)
    steps = [out]
    for position in range(2, 6):
        out, cache = mixer.step(x[:, position], cache, memory=memory)
        steps.append(out[:, None])
    assert (torch.cat(steps, 1) - whole).abs().max() < 1e-12


@pytest.mark.parametrize("name", MIXERS[:2], ids=["token mixer", "core"])
def test_what_is_padded_in_the_other_sequence_has_no_influence(name):
    mixer = subquad.mixer(name, dim=8, num_heads=2, role="cross").double()
    x, context, keep = draw(2, 3, 8), draw(2, 5, 8, seed=1), torch.arange(5).expand(2, -1) < 4
    memory, other = (
        mixer.memory(tokens, keep=keep)
        for tokens in (context, torch.where(keep[..., None], context, 9.0))
    )
    assert (
        mixer.prefill(x, memory=memory)[0] - mixer.prefill(x, memory=other)[0]
    ).abs().max() < 1e-12


@pytest.mark.parametrize("name", MIXERS[:2], ids=["token mixer", "core"])
def test_the_certificate_proves_it(name):
    for case in check_mixer(name, only=("cross", "cross-cache", "padding-content", "complexity")):
        case()


def test_where_it_mixes_one_sequence_it_offers_no_cache():
    assert not any(subquad.mixer(name, dim=8, num_heads=2).caches for name in MIXERS)


def test_a_claim_of_cross_is_asked_for_where_two_sequences_meet():
    with pytest.raises(ConfigError, match=r"mixer fourier .*mixes one sequence"):
        subquad.mixer("fourier", dim=8, role="cross")


def test_a_task_may_decode():
    spec = importlib.util.spec_from_file_location("third_task", PLUGINS / "third_task.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from subquad.data import DataSpec
    from subquad.nn import ModelOutput
    from subquad.plugin import Config

    task = module.NextToken(Config(), DataSpec.tokens(3, 5))
    batch = {"inputs": torch.tensor([[1, 2, 3]]), "keep": torch.ones(1, 3, dtype=torch.bool)}
    model = lambda batch: ModelOutput(torch.nn.functional.one_hot(batch["inputs"] + 1, 5).float())  # noqa: E731
    assert task.decode(model, batch).tolist() == [[1, 2, 3, 4]]
    assert task.weight(batch) == 2
