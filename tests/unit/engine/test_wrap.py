"""What the engine does to a model before it trains: computing blocks again, replicas, shards. No
number changes.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from small_run import on_ranks
from torch import multiprocessing, nn
from wrapped import models, one_of_two, train_long_document, trained
from writing import greedy

from subquad.data import DataSpec
from subquad.engine.group import Group
from subquad.engine.parts import ModelParts, _tried
from subquad.engine.tensors import model_tensors
from subquad.experiment.schema import Train
from subquad.nn import Backbone, ModelOutput
from subquad_plugins.classification import Config as ClassificationConfig
from subquad_plugins.classification.task import Classification


@pytest.mark.parametrize("kind", [0, 1], ids=["encoder-decoder", "decoder"])
def test_computing_blocks_again_changes_no_number_and_keeps_less(kind):
    found = []
    for recompute in (False, True):
        model, batch = models(dropout=0.2)[kind]
        calls, kept = [], []
        model.blocks[0].ffn.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        names = set(model.state_dict())
        wrapped = Group().wrap(model.train(), None, False, recompute)
        assert set(model.state_dict()) == names
        torch.manual_seed(3)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, kept=kept: kept.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            wrapped(batch)
        assert len(calls) == 1
        torch.manual_seed(3)
        losses = trained(model, wrapped, batch, 10.0)
        assert len(calls) == 1 + 3 * (1 + recompute)
        model.eval()
        found.append((losses, greedy(model, batch, 4)[1], sum(kept)))
    (plain, logits, all_kept), (again, other, less_kept) = found
    assert plain == again
    assert torch.equal(logits, other)
    assert less_kept < 0.5 * all_kept


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler's own
def test_compiled_blocks_are_computed_again_too(monkeypatch):
    """In one graph for each block, or the compiler would refuse."""
    monkeypatch.setattr(
        torch, "compile", partial(torch.compile, backend="aot_eager", fullgraph=True)
    )
    model, batch = models()[1]
    expected = trained(model, model, batch, 10.0)
    again, _ = models()[1]
    found = trained(again, Group().wrap(again, None, True, True), batch, 10.0)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.ci
def test_two_processes_score_train_and_write_as_one_does():
    """DDP and FSDP2: losses of three steps, the weights after them, and the tokens that are then
    written.
    """
    expected = []
    for model, batch in models():
        losses = trained(model, model, batch, 4.0)
        tokens, _ = greedy(model, batch, 6)
        expected.append((losses, model_tensors(model), tokens))
    with tempfile.TemporaryDirectory() as scratch:
        on_ranks(one_of_two, (f"{scratch}/rendezvous", expected), 2)


@pytest.mark.extended
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize(
    ("mixer", "params"),
    [("mdfwa", {}), ("mdfwa", {"frequencies": "learned"}), ("softmax", {})],
    ids=str,
)
def test_a_long_document_trains_within_24_gb(mixer, params, recompute):
    """`pytest -s` shows the figures of docs/measurements.md."""
    multiprocessing.spawn(
        train_long_document, (mixer, params, recompute, 8.0 if recompute else 24.0), nprocs=1
    )


class _Partial(Backbone):
    """One layer, another that gives no output where `idle`, and a buffer that each call changes."""

    def __init__(self, idle: bool):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(3, 2), nn.Linear(3, 2)])
        self.idle = idle
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, batch):
        self.calls += 1
        return ModelOutput(
            sum(block(batch["inputs"][:, 0]) for block in self.blocks[: 1 if self.idle else 2])
        )


@pytest.mark.parametrize("idle", [True, False])
def test_a_trial_step_finds_weights_without_a_gradient_and_leaves_nothing(small_parts, idle):
    model = _Partial(idle)
    parts = replace(small_parts, model=model, bare_model=model)
    assert _tried(parts, model) is not idle
    assert model.calls == 0
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.fixture
def small_parts():
    spec = DataSpec.series(4, 3, num_classes=2)
    run = SimpleNamespace(experiment=SimpleNamespace(train=Train(batch_size=4)))
    task = Classification(ClassificationConfig(), spec)
    return ModelParts(
        run=run, group=Group(), task=task, model=nn.Identity(), bare_model=nn.Identity()
    )
