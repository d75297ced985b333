"""Operations with several implementations: which one runs, what is recorded, what may be forced."""

import re

import pytest
import torch

from subquad.errors import ConfigError
from subquad.nn.kernels import Operation, check_kernels, recording, using

DOUBLE = Operation("tests.double", reference=lambda x: x * 2)


@DOUBLE.implementation("fast", dtypes=(torch.float32,), when=lambda x: x.shape[0] > 3)
def _fast(x):
    return x + x


@DOUBLE.implementation("cuda-only", devices=("cuda",))
def _cuda_only(x):
    raise AssertionError("runs on cuda alone")


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (torch.ones(4), "fast"),
        (torch.ones(3), "reference"),
        (torch.ones(4, dtype=torch.float64), "reference"),
    ],
)
def test_the_first_that_takes_the_tensors_runs_and_is_recorded(x, expected):
    with using() as used:
        assert torch.equal(DOUBLE(x), 2 * x)
    assert used == {"tests.double": expected}


def test_several_are_joined_in_the_order_they_ran():
    with using() as used:
        for length in (5, 2, 7, 1):
            DOUBLE(torch.ones(length))
    assert used == {"tests.double": "fast, reference"}


@pytest.mark.parametrize("forced", ["reference", {"tests.double": "reference"}])
def test_a_forced_implementation_runs(forced):
    with using(forced) as used:
        DOUBLE(torch.ones(9))
    assert used == {"tests.double": "reference"}
    with using({"tests.other": "fast"}) as used:
        DOUBLE(torch.ones(9))
    assert used == {"tests.double": "fast"}


def test_a_forced_implementation_that_does_not_take_the_tensors_is_refused():
    message = "train.kernels.tests.double: fast cannot run here: (2,) torch.float32 on cpu"
    with using({"tests.double": "fast"}), pytest.raises(ConfigError, match=re.escape(message)):
        DOUBLE(torch.ones(2))


def test_an_implementation_for_the_device_that_is_passed_over_is_told_once(caplog):
    half = Operation("tests.half", reference=lambda x: x / 2)
    half.implementation("here", devices=("cpu",), dtypes=(torch.float32,))(lambda x: x * 0.5)
    for dtype in (torch.float64, torch.float32, torch.float64):
        half(torch.ones(2, dtype=dtype))
    messages = [
        "tests.half: here does not take these arguments (torch.float64 on cpu), reference runs"
    ]
    assert caplog.messages == messages


def test_one_that_is_never_chosen_runs_only_where_it_is_forced():
    third = Operation("tests.third", reference=lambda x: x / 3)
    third.implementation("usual", chosen=False)(lambda x: x * (1 / 3))
    third.implementation("fast", devices=("cuda",))(lambda x: x / 3)
    assert [implementation.name for implementation in third.implementations] == [
        "fast",
        "reference",
        "usual",
    ]
    for forced, ran in (
        ("", "reference"),
        ("reference", "reference"),
        ({"tests.third": "usual"}, "usual"),
    ):
        with using(forced) as used:
            third(torch.ones(2))
        assert used == {"tests.third": ran}


def test_calls_are_recorded_with_their_arguments():
    x = torch.ones(4)
    with recording() as calls:
        DOUBLE(x)
        DOUBLE(x + 1)
    DOUBLE(x)
    assert [operation.name for operation, _, _ in calls] == ["tests.double"] * 2
    assert calls[0][1][0] is x
    assert calls[0][2] == {}


def test_contexts_nest():
    with using("reference") as outer:
        with using() as inner:
            DOUBLE(torch.ones(9))
        DOUBLE(torch.ones(9))
    assert (outer, inner) == ({"tests.double": "reference"}, {"tests.double": "fast"})


@pytest.mark.parametrize(
    ("forced", "message"),
    [
        (
            "refrence",
            "train.kernels: got 'refrence', must be 'reference' or implementations by operation",
        ),
        (
            {"tests.doubel": "fast"},
            "train.kernels: no operation 'tests.doubel' in this model; did you "
            "mean 'tests.double'?; "
            "operations: tests.double",
        ),
        (
            {"tests.double": "fats"},
            "train.kernels.tests.double: no implementation 'fats'; did you mean 'fast'?; "
            "implementations: fast, cuda-only, reference",
        ),
        (
            {"tests.double": "cuda-only"},
            "train.kernels.tests.double: cuda-only runs on cuda, this run on cpu",
        ),
    ],
)
def test_what_cannot_take_effect_is_refused(forced, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_kernels(forced, "cpu", ["tests.double"])


@pytest.mark.parametrize("forced", ["reference", {}, {"tests.double": "fast"}])
def test_what_can_take_effect_is_taken(forced):
    check_kernels(forced, "cpu", ["tests.double"])


@pytest.mark.parametrize("forced", [{}, "reference"])
def test_compiled_models_choose_alike_and_are_recorded_each_time(forced):
    class Model(torch.nn.Module):
        def forward(self, x):
            return DOUBLE(x) + 1

    compiled = torch.compile(Model(), backend="eager", fullgraph=True)
    for _ in range(2):
        with using(forced) as used:
            assert torch.equal(compiled(torch.ones(8)), torch.full((8,), 3.0))
        assert used == {"tests.double": "reference" if forced else "fast"}
