"""Runs of another length that are alike in everything else, and widths for a number of
parameters.
"""

import pytest

from subquad.errors import ConfigError
from subquad.experiment.rules import conflicts
from subquad.experiment.schema import Experiment, Train
from subquad.preparation.size import nearest_width
from subquad.search.fitting import _evaluated_every, _evaluations, _of_length, _steps_of_flops


def lengthened(train, steps, per_epoch):
    own = train.steps or train.epochs * per_epoch
    values = _of_length(train, own, per_epoch, steps)
    return train.model_validate(
        train.model_dump() | {key.removeprefix("train."): value for key, value in values.items()}
    )


def test_its_own_length_changes_nothing():
    assert _of_length(Train(epochs=4), 40, 10, 40) == {}


@pytest.mark.parametrize("steps", [1, 3, 17, 39, 41, 100, 1000])
@pytest.mark.parametrize(
    "train",
    [
        Train(epochs=4, warmup_steps=8),
        Train(epochs=4, eval_every_epochs=2, patience=None),
        Train(
            steps=40,
            epochs=None,
            eval_every_epochs=None,
            eval_every_steps=7,
            checkpoint_every_steps=30,
        ),
        Train(steps=40, epochs=None, eval_every_epochs=None),
    ],
)
def test_another_length_is_a_valid_run_with_as_many_evaluations(train, steps):
    own = train.steps or train.epochs * 10
    new = lengthened(train, steps, 10)
    assert (new.steps, new.epochs) == (steps, None)
    every = train.eval_every_steps or (train.eval_every_epochs or 0) * 10
    if not every:
        assert new.eval_every_steps is None
    else:
        assert new.eval_every_steps == max(1, every * steps // own)
        assert -(-steps // new.eval_every_steps) >= min(steps, -(-own // every))
    assert new.warmup_steps == min(steps - 1, round(train.warmup_steps * steps / own))
    component = {"name": "x"}
    whole = Experiment(
        dataset=component, task=component, backbone=component, mixer=component, train=new
    )
    assert list(conflicts(whole)) == []


@pytest.mark.parametrize("steps", [8, 17, 79, 81, 1000])
def test_patience_still_has_the_evaluations_it_needs(steps):
    new = lengthened(Train(epochs=8, patience=3), steps, 10)
    assert -(-steps // new.eval_every_steps) >= 8


def test_steps_of_equal_flops():
    assert _steps_of_flops(1000.0, 50) == 20
    assert _steps_of_flops(1000.0, 52) == 19
    with pytest.raises(
        ConfigError,
        match=r"no number of steps has 1e\+03 FLOPs within 5%: the nearest, 3, is 10% off",
    ):
        _steps_of_flops(1000.0, 300)


@pytest.mark.parametrize(
    ("train", "count"),
    [
        (Train(epochs=4), 4),
        (Train(epochs=4, eval_every_epochs=3), 2),
        (Train(epochs=4, eval_every_epochs=None), 1),
        (Train(epochs=4, eval_every_epochs=None, eval_every_steps=40), 1),
        (Train(epochs=4, eval_every_epochs=None, eval_every_steps=39), 2),
    ],
)
def test_evaluations_of_a_run(train, count):
    assert _evaluations(40, _evaluated_every(train, 10)) == count


@pytest.mark.parametrize("target", [500, 1000, 12_345, 1_000_000])
def test_the_nearest_width_is_found_with_few_models(target):
    widths = set()

    def count(width):
        widths.add(width)
        return 100 + 13 * width

    width = nearest_width(target, count)
    assert len(widths) < 12
    assert abs(count(width) - target) == min(
        abs(count(neighbour) - target)
        for neighbour in (width - 1, width, width + 1)
        if neighbour > 0
    )


def test_parameters_need_not_be_linear_in_the_width():
    assert nearest_width(40 * 40, lambda width: width * width) == 40


def test_where_no_width_comes_near():
    with pytest.raises(
        ConfigError,
        match=r"ffn_dim gives 50 parameters within 2%: the nearest, 1, has 113, .*larger",
    ):
        nearest_width(50, lambda width: 100 + 13 * width)
