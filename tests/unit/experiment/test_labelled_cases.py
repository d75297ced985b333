"""An axis whose values say what they set: runs that each change some settings of a base."""

from __future__ import annotations

import pytest

from subquad.errors import ConfigError
from subquad.experiment import digest
from subquad.search.candidates import candidates_of

HEAD = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
mixer: {name: agf, params: {order: 4}}
train: {epochs: 20, batch_size: 16}
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels}}
    - {name: uea, params: {problem: Heartbeat}}
  seed: [0, 1]
  change:
    - base
"""
ORDERS = """\
    - {label: order3, set: {mixer.params.order: 3}}
    - {label: order4, set: {mixer.params.order: 4}}
    - {label: order5, set: {mixer.params.order: 5}}
"""
STUDY = HEAD + ORDERS + "    - {label: a1.5, set: {mixer.params.jacobi_a: 1.5}}\n"
VOWELS = [f"JapaneseVowels-{name}-seed" for name in ("base", "order3", "order5", "a1.5")]


def labels(plan):
    return [cell.label for cell in plan.runs]


def mixers(plan):
    return {cell.label: cell.experiment.mixer.params for cell in plan.runs}


def test_one_setting_at_a_time_and_the_base_once(loaded):
    plan = loaded(STUDY)
    assert labels(plan)[:8] == [f"{label}{seed}" for label in VOWELS for seed in (0, 1)]
    assert len(plan.runs) == 16
    assert plan.runs[0].axes == {"dataset": "JapaneseVowels", "change": {}, "seed": 0}
    assert plan.runs[3].axes == {
        "dataset": "JapaneseVowels",
        "change": {"mixer.params.order": 3},
        "seed": 1,
    }
    found = [(params["order"], params["jacobi_a"]) for params in mixers(plan).values()][:8:2]
    assert found == [(4, 1.0), (3, 1.0), (5, 1.0), (4, 1.5)]
    assert len({digest(cell.experiment) for cell in plan.runs}) == 16


def test_a_case_may_change_several_settings(loaded):
    plan = loaded(
        HEAD
        + "    - {label: both, set: {mixer.params: {order: 2, jacobi_a: 1.5}, train.lr: 0.5}}\n"
    )
    assert plan.runs[2].axes["change"] == {
        "mixer.params.order": 2,
        "mixer.params.jacobi_a": 1.5,
        "train.lr": 0.5,
    }


def test_the_base_of_each_run_is_its_own(loaded):
    heartbeat = "params: {problem: Heartbeat}"
    plan = loaded(STUDY.replace(heartbeat, f"{heartbeat}, set: {{mixer.params.order: 5}}"))
    assert labels(plan)[8::2] == [
        f"Heartbeat-{name}-seed0" for name in ("base", "order3", "order4", "a1.5")
    ]
    assert mixers(plan)["Heartbeat-a1.5-seed0"]["order"] == 5


def test_a_labelled_case_may_be_for_some_runs(loaded):
    plan = loaded(HEAD + "    - {label: order3, only: [Heartbeat], set: {mixer.params.order: 3}}\n")
    assert labels(plan)[2::2] == ["Heartbeat-base-seed0", "Heartbeat-order3-seed0"]


def test_an_override_moves_the_base_and_no_value_of_a_case(loaded):
    plan = loaded(STUDY, "mixer.params.order=7")
    assert {
        name: params["order"] for name, params in mixers(plan).items() if name.startswith("Japa")
    } == {
        f"JapaneseVowels-{name}-seed{seed}": order
        for name, order in {"base": 7, "order3": 3, "order4": 4, "order5": 5, "a1.5": 7}.items()
        for seed in (0, 1)
    }


def test_it_may_be_the_only_axis(loaded, base_text):
    plan = loaded(base_text + "matrix: {any: [base, {label: steps9, set: {train.steps: 9}}]}\n")
    trains = [cell.experiment.train for cell in plan.runs]
    assert (plan.single, labels(plan)) == (False, ["base", "steps9"])
    assert [(train.epochs, train.steps) for train in trains] == [(20, None), (None, 9)]


def test_cases_are_chosen_by_label(loaded):
    assert labels(
        loaded(
            STUDY, "matrix.change=[order5, base]", "matrix.seed=[3]", "matrix.dataset=[Heartbeat]"
        )
    ) == [
        "Heartbeat-order5-seed3",
        "Heartbeat-base-seed3",
    ]
    plan = loaded(STUDY, "matrix.change=[order4]", "matrix.seed=[3]")
    assert labels(plan) == ["JapaneseVowels-order4-seed3", "Heartbeat-order4-seed3"]
    assert labels(loaded(plan.text)) == labels(plan)


@pytest.mark.parametrize(
    "overrides", [(), ("mixer.params.order=5",), ("matrix.change=[base, a1.5]",)]
)
def test_the_written_study_is_the_same_again(loaded, overrides):
    plan = loaded(STUDY, *overrides)
    again = loaded(plan.text)
    assert [(run.label, run.axes) for run in again.runs] == [
        (run.label, run.axes) for run in plan.runs
    ]
    assert [run.experiment for run in again.runs] == [run.experiment for run in plan.runs]
    assert again.text == plan.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{label: base, set: {mixer.params.order: 3}}",
            "matrix.change[1]: has the label 'base', as matrix.change[0] has; give one of them",
        ),
        (
            "{label: a/b, set: {train.lr: 1}}",
            "matrix.change[1].label: got 'a/b', must be ",
        ),
        ("{set: {train.lr: 1}}", "matrix.change[1].label: missing, must be"),
        ("{label: x, sets: {}}", "matrix.change[1].sets: unknown key; did you mean 'set'?"),
        ("{label: x, set: 3}", "matrix.change[1].set: got 3, must be a mapping"),
        ("[x]", 'matrix.change[1].label: got ["x"], must be '),
        (
            "{label: x, set: {mixer.params.ordr: 3}}",
            "mixer.params.ordr: unknown key; did you mean 'order'? (run",
        ),
        (
            "{label: x, set: {mixer.order: 3}}",
            "mixer.order: unknown key; it belongs at mixer.params.order (run",
        ),
        (
            "{label: x, set: {mixer.params.order: 99}}",
            "exp.yaml:13: mixer.params.order: got 99, must be a whole number >= 0 "
            "and <= 32 (run JapaneseVowels-x-",
        ),
        (
            "{label: x, set: {train.seed: 2}}",
            "cannot be set, as seed is an axis of this study; leave it out here",
        ),
        (
            "{label: x, only: [y], set: {train.lr: 1}}",
            "matrix.change[1].only: no value has the label 'y'; there is JapaneseVowels, Heartbeat",
        ),
        (
            "{label: x, set: {train.log_every: 2}}",
            "matrix: run JapaneseVowels-x-seed0 differs from JapaneseVowels-base-seed0 in nothing "
            "that decides the numbers; leave it out",
        ),
    ],
)
def test_refusals(refused, text, message):
    assert message in refused(
        HEAD + f"    - {text}\n" + "    - {label: other, set: {train.eps: 1e-7}}\n"
    )


def test_two_cases_of_one_label_are_refused(refused):
    text = STUDY + "    - {label: A1.5, set: {train.lr: 1}}\n"
    assert "matrix.change[5]: has the label 'A1.5', as matrix.change[4] has" in refused(text)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "matrix.change=[order6]",
            "matrix.change[0]: no value has the label 'order6'; did you mean 'order3'?",
        ),
        (
            "matrix.change=[7]",
            "matrix.change[0]: no value has the label 7; there is base, order3",
        ),
        ("runs=[]", "runs: can only be given in a file"),
    ],
)
def test_refused_overrides(refused, override, message):
    assert message in refused(STUDY, override)


def test_a_name_that_is_no_setting_needs_values_that_say_what_they_set(refused, base_text):
    assert "case: unknown key; " in refused(base_text, "matrix.case=[base]")


def test_too_many_runs(refused):
    text = HEAD + "".join(
        f"    - {{label: x{number}, set: {{train.lr: 0.{number:04}1}}}}\n" for number in range(900)
    )
    message = "matrix: 2 dataset x 901 change x 6 seed makes 10,812 runs, must be at most 10,000"
    assert message in refused(text, "matrix.seed=[0, 1, 2, 3, 4, 5]")


def test_what_the_command_line_gives_is_never_dropped_in_silence(loaded, refused):
    text = HEAD + "    - {label: low, set: {mixer.params: {order: 2}}}\n"
    assert refused(text, "mixer.params.jacobi_a=1.5") == (
        "override 'mixer.params.jacobi_a=1.5': mixer.params.jacobi_a: is dropped "
        "by a value that replaces what is above it; leave one of them out"
    )
    assert {
        params["order"] for params in mixers(loaded(text, "mixer.params.order=7")).values()
    } == {7, 2}


def test_a_search_does_not_take_it(loaded):
    with pytest.raises(
        ConfigError,
        match=r"^matrix.change: what changes settings one at a time is for subquad train",
    ):
        candidates_of(loaded(STUDY))
    assert len(candidates_of(loaded(STUDY, "matrix.change=[base]"))) == 2
