"""What a budget is, and when one more trial fits."""

import pytest

from subquad.errors import ConfigError
from subquad.search.settings import Budget
from subquad.search.trial import Trial


def trial(number, state="finished", **used):
    return Trial(candidate="", number=number, point={}, state=state, **used)


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("20-trials", "trials", 20),
        ("1-trial", "trials", 1),
        ("2h", "seconds", 7200),
        ("0.5h", "seconds", 1800),
        ("30m", "seconds", 1800),
        ("90s", "seconds", 90),
        ("1e15flops", "flops", 1e15),
        ("2.5e9flops", "flops", 2.5e9),
    ],
)
def test_budgets(text, unit, amount):
    assert Budget.parse(text) == Budget(unit, amount)


@pytest.mark.parametrize(
    "text", ["", "20", "trials", "-3-trials", "20 trials", "1e15", "2d", "1h30m", "infh", "nans"]
)
def test_what_is_no_budget(text):
    with pytest.raises(
        ConfigError,
        match=r"^--budget: got '.*', must be such as 20-trials, 2h, 30m, 90s or 1e15flops$",
    ):
        Budget.parse(text)


@pytest.mark.parametrize("text", ["0-trials", "0h", "0.0s", "0flops"])
def test_too_small_for_anything(text):
    with pytest.raises(
        ConfigError, match=rf"--budget: got '{text}', which is too small for one trial"
    ):
        Budget.parse(text)


def test_half_a_trial():
    with pytest.raises(ConfigError, match="must be a whole number of trials"):
        Budget.parse("2.5-trials")


def test_an_endless_budget_is_refused():
    with pytest.raises(ConfigError, match="--budget: got '1e999flops', which is no finite number"):
        Budget.parse("1e999flops")


def test_infeasible_points_do_not_count_and_failed_ones_do():
    known = [trial(0), trial(1, "infeasible"), trial(2, "failed"), trial(3, "pruned")]
    assert not Budget("trials", 3).admits(known, trial(4))
    assert Budget("trials", 4).admits(known, trial(4))


@pytest.mark.parametrize("unit", ["flops", "seconds"])
def test_a_trial_that_does_not_fit_is_not_started(unit):
    known = [
        trial(0, **{unit: 4.0}),
        trial(1, "running", **{unit: 3.0}),
        trial(2, "infeasible", **{unit: 99.0}),
    ]
    assert Budget(unit, 10.0).admits(known, trial(3, **{unit: 3.0}))
    assert not Budget(unit, 10.0).admits(known, trial(3, **{unit: 3.1}))


def test_rounding_does_not_cost_a_trial():
    known = [trial(number, flops=0.1) for number in range(9)]
    assert Budget("flops", 1.0).admits(known, trial(9, flops=0.1))
    assert not Budget("flops", 1.0).admits([*known, trial(9, flops=0.1)], trial(10, flops=0.1))
