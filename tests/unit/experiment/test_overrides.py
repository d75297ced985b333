"""Overrides: what they change, what they keep, and pairs of alternatives."""

from __future__ import annotations

import pytest


def experiment(plan):
    (cell,) = plan.runs
    return cell.experiment


def test_a_number_a_name_and_a_mapping(loaded, base_text):
    made = experiment(
        loaded(base_text, "train.lr=3e-4", "mixer.params.order=5", "tracking={uri: off}")
    )
    assert (made.train.lr, made.mixer.params["order"], made.tracking.enabled) == (3e-4, 5, False)
    assert made.train.epochs == 20


def test_a_section_adds_to_what_is_there(loaded, base_text):
    made = experiment(loaded(base_text, "train={lr: 0.5}"))
    assert (made.train.lr, made.train.batch_size, made.train.epochs) == (0.5, 16, 20)


def test_another_mixer_drops_the_parameters(loaded, base_text):
    made = experiment(loaded(base_text, "mixer=softmax"))
    assert (made.mixer.name, made.mixer.params) == (
        "softmax",
        {"bias": True, "qk_norm": "none", "rotary": False, "dropout": 0.0, "kernel": "fused"},
    )


def test_the_same_mixer_keeps_them(loaded, base_text):
    assert experiment(loaded(base_text, "mixer=agf")).mixer.params["order"] == 4
    made = experiment(loaded(base_text, "mixer={name: agf, params: {ortho_weight: 0.5}}"))
    assert (made.mixer.params["order"], made.mixer.params["ortho_weight"]) == (4, 0.5)


def test_components_come_first_whatever_the_order(loaded, base_text):
    made = experiment(loaded(base_text, "mixer.params.dropout=0.25", "mixer=softmax"))
    assert made.mixer.params["dropout"] == 0.25


def test_all_parameters_at_once_replace_all(loaded, base_text):
    text = base_text.replace("{order: 4}", "{order: 4, ortho_weight: 0.5}")
    assert experiment(loaded(text, "mixer.params={order: 2}")).mixer.params["ortho_weight"] == 0.1


@pytest.mark.parametrize(
    ("line", "overrides", "epochs", "steps"),
    [
        ("epochs: 20", (), 20, None),
        ("steps: 7", (), None, 7),
        ("epochs: null\n  steps: 7", (), None, 7),
        ("epochs: 20", ("train.steps=7",), None, 7),
        ("steps: 7", ("train.epochs=3",), 3, None),
        ("steps: 7", ("train={epochs: 3}",), 3, None),
        ("epochs: 20", ("train.steps=7", "train.epochs=null"), None, 7),
    ],
)
def test_giving_one_of_a_pair_switches_the_other_off(
    loaded, base_text, line, overrides, epochs, steps
):
    train = experiment(loaded(base_text.replace("epochs: 20", line), *overrides)).train
    assert (train.epochs, train.steps) == (epochs, steps)


def test_giving_both_of_a_pair_is_refused(refused, base_text):
    text = base_text.replace("epochs: 20", "epochs: 20\n  steps: 7")
    assert (
        refused(text)
        == "exp.yaml:7: train: give train.epochs or train.steps, and null for the other"
    )


def test_evaluations_by_steps_switch_those_by_epochs_off(loaded, base_text):
    train = experiment(loaded(base_text, "train.eval_every_steps=5")).train
    assert (train.eval_every_epochs, train.eval_every_steps) == (None, 5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.lr",), "override 'train.lr': no '=', write key=value, as in train.lr=3e-4"),
        (("=3",), "override '=3': '' is not a key, write key=value, as in train.lr=3e-4"),
        (
            ("train..lr=3",),
            "override 'train..lr=3': 'train..lr' is not a key, write key=value, as "
            "in train.lr=3e-4",
        ),
        (("train.lr=1", "train.lr=2"), "override 'train.lr=2': train.lr: given twice"),
        (
            ("train.lr.x=1",),
            "override 'train.lr.x=1': train.lr.x: cannot be set, as train.lr is not a mapping",
        ),
        (("a\nb",), "override 'a\\nb': no '=', write key=value, as in train.lr=3e-4"),
    ],
)
def test_what_is_no_override(refused, base_text, overrides, message):
    assert refused(base_text, *overrides) == message
