"""The cost of a training step: by hand for small models, and that of the certificate's counter
for every mixer.
"""

import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from subquad.cost import counting, step_cost
from subquad.engine.model import build_model
from subquad.engine.parts import build_dataset, build_task, training_cost
from subquad.errors import PluginError
from subquad.experiment import load_study

L, D, C = 8, 6, 3
FLOAT = 4


def example(samples: int) -> dict[str, Tensor]:
    return {"inputs": torch.ones(samples, L, D)}


def test_a_linear_model_by_hand():
    model = nn.Linear(D, C)
    batch = 32
    cost = step_cost(model, lambda data: model(data["inputs"]).sum(), example, batch)
    tokens = batch * L
    assert cost.parameters == D * C + C
    # Forward: a product and a sum. Backward: the weight's gradient, one product, and the bias's, a
    # sum.
    assert cost.flops_per_step == 2 * tokens * D * C + tokens * C + 2 * tokens * D * C + tokens * C
    assert cost.uncounted == ()


def test_work_on_weights_alone_comes_once_whatever_the_batch():
    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.rate = nn.Parameter(torch.ones(100))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.rate.exp().sum()

    model = Filter()
    found = {
        n: step_cost(model, lambda data: model(data["inputs"]).sum(), example, n).flops_per_step
        for n in (1, 2, 64)
    }
    # Forward: exp and its sum, and the product and its sum. Backward: the product and its sum, and
    # exp's.
    assert found == {n: 200 + 2 * n * L * D + 2 * n * L * D + 100 for n in found}


@torch.library.custom_op("subquad_tests::riddle", mutates_args=())
def mystery(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (lambda x: x + mystery(x.detach()), "subquad_tests::riddle"),
        (lambda x: x + torch.from_numpy(x.detach().numpy()), "Tensor.numpy"),
        (
            lambda x: x.cuda_kernel(),
            "AttributeError: 'Tensor' object has no attribute 'cuda_kernel'",
        ),
    ],
)
def test_what_cannot_be_counted_is_named_and_no_number_given(broken, named):
    linear = nn.Linear(D, D)
    cost = step_cost(linear, lambda data: broken(linear(data["inputs"])).sum(), example, 16)
    assert (cost.flops_per_step, cost.bytes_per_step, cost.uncounted) == (None, None, (named,))
    assert cost.parameters == D * D + D


PARAMS = {"cur": {"num_indices": 8}, "megacur": {"num_indices": 8}}


@pytest.mark.parametrize(
    "name",
    [
        "identity",
        "softmax",
        "agf",
        "fourier",
        "causal_fourier",
        "cur",
        "mega",
        "megacur",
        "mdfwa",
        "wavelet",
        "sfpc",
    ],
)
def test_the_engine_counts_what_the_certificate_counts(name, tmp_path):
    params = ", ".join(f"{key}: {value}" for key, value in PARAMS.get(name, {}).items())
    mixer = f"matrix.mixer=[{{name: {name}, params: {{{params}}}}}]"
    data = "matrix.dataset=[JapaneseVowels]"
    (run,) = load_study("quickstart", [mixer, data, "matrix.seed=[0]"]).runs
    found = build_dataset(dataclasses.replace(run, data_root=tmp_path)).describe()
    spec = dataclasses.replace(found, lengths={**found.lengths, "length": 96})
    cost = training_cost(run, spec)
    task = build_task(run, spec)
    model = build_model(run, spec, task.num_outputs)
    arrays = spec.example(run.experiment.train.batch_size)
    batch = {key: torch.from_numpy(values) for key, values in arrays.items()}
    assert batch["inputs"].shape[1] == 96
    with counting() as count, FlopCounterMode(display=False) as products:
        output = model(batch)
        loss, _ = task.loss(output.outputs, batch)
        (loss if output.penalty is None else loss + output.penalty.sum()).backward()
    assert count.unknown == cost.uncounted == ()
    assert cost.flops_per_step == pytest.approx(count.flops, rel=2e-6)
    assert cost.bytes_per_step == pytest.approx(count.moved, rel=1e-3)
    assert cost.flops_per_step > products.get_total_flops()


def test_a_part_that_refuses_its_place_is_no_uncounted_operation():
    def refusing(batch):
        raise PluginError("use the same mixer in all layers")

    with pytest.raises(PluginError, match="the same mixer"):
        step_cost(nn.Linear(D, C), refusing, example, 2)
