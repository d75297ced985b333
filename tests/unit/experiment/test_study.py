"""Studies: runs, labels, what values bring along, exclusions, and overrides over all of them."""

from __future__ import annotations

import pytest

STUDY = """\
name: table
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 4}}
train: {epochs: 20, batch_size: 16}
matrix:
  dataset:
    - {name: uea, params: {problem: JapaneseVowels}}
    - {name: uea, params: {problem: Heartbeat}}
  mixer: [agf, softmax]
  seed: [0, 1]
"""
HEARTBEAT = "    - {name: uea, params: {problem: Heartbeat}}\n"
BRINGING = STUDY.replace(
    HEARTBEAT,
    """\
    - name: uea
      params: {problem: Heartbeat}
      set: {train.epochs: 5}
      beside: {agf: {mixer.params.order: 2, train: {lr: 0.5}}}
""",
)


def labels(plan):
    return [cell.label for cell in plan.runs]


def settings(plan, label):
    (cell,) = [cell for cell in plan.runs if cell.label == label]
    return cell.experiment


def test_cells_are_the_product_in_the_order_written(loaded):
    plan = loaded(STUDY)
    assert (plan.name, plan.single) == ("table", False)
    assert labels(plan) == [
        "JapaneseVowels-agf-seed0",
        "JapaneseVowels-agf-seed1",
        "JapaneseVowels-softmax-seed0",
        "JapaneseVowels-softmax-seed1",
        "Heartbeat-agf-seed0",
        "Heartbeat-agf-seed1",
        "Heartbeat-softmax-seed0",
        "Heartbeat-softmax-seed1",
    ]
    assert plan.runs[5].axes == {"dataset": "Heartbeat", "mixer": "agf", "seed": 1}
    made = plan.runs[5].experiment
    assert (made.name, made.dataset.params["problem"], made.train.seed) == ("table", "Heartbeat", 1)


def test_a_file_without_matrix_is_one_cell(loaded, base_text):
    plan = loaded(base_text)
    assert (plan.single, labels(plan), plan.runs[0].axes) == (True, ["base"], {})


ORDERS = """\
matrix:
  mixer.params.order: [3, 5]
  mixer: [{name: agf, params: {order: 2, basis: monomial}}, agf-code, softmax]
"""


def test_an_axis_over_a_parameter_lies_over_the_component(loaded, base_text):
    study = base_text + ORDERS.replace(", agf-code, softmax", ", {name: agf, label: other}")
    plan = loaded(study)
    found = {run.label: run.experiment.mixer.params for run in plan.runs}
    assert list(found) == ["order3-agf", "order3-other", "order5-agf", "order5-other"]
    assert [params["order"] for params in found.values()] == [3, 3, 5, 5]
    assert found["order5-agf"]["basis"] == "monomial"
    again = loaded(plan.text)
    assert [(run.label, run.digest, run.axes) for run in again.runs] == [
        (run.label, run.digest, run.axes) for run in plan.runs
    ]


def test_a_component_without_the_parameter_is_refused_or_left_out(loaded, refused, base_text):
    study = base_text + ORDERS.replace("agf-code, ", "")
    assert refused(study).endswith(
        "; there is bias, qk_norm, rotary, dropout, kernel (run order3-softmax)"
    )
    chosen = "[{value: 3, only: [agf]}, {value: 5, only: [agf]}]"
    assert labels(loaded(study.replace("[3, 5]", chosen))) == ["order3-agf", "order5-agf"]


def test_a_value_that_is_not_trained_may_set_what_an_axis_decides(loaded, refused, base_text):
    study = (
        base_text + "matrix: {mixer: [agf, {name: softmax, set: {mixer.params: {dropout: 0.1}}}]}\n"
    )
    axes = ("matrix.mixer=[agf]", "matrix.mixer.params.order=[3, 5]")
    assert labels(loaded(study, *axes)) == ["agf-order3", "agf-order5"]
    assert "cannot be set, as mixer.params.order is an axis" in refused(study, axes[1])


def test_what_values_set_is_for_their_runs(loaded):
    plan = loaded(BRINGING)
    assert settings(plan, "JapaneseVowels-agf-seed0").train.epochs == 20
    assert settings(plan, "Heartbeat-softmax-seed0").train.epochs == 5
    made = settings(plan, "Heartbeat-agf-seed1")
    assert (made.train.epochs, made.train.lr, made.mixer.params["order"]) == (5, 0.5, 2)


def test_what_is_set_beside_another_value_comes_after_what_values_set(loaded):
    value = "{name: agf, set: {train.epochs: 7}, beside: {Heartbeat: {train.epochs: 8}}}"
    plan = loaded(STUDY.replace("[agf,", f"[{value},"))
    assert settings(plan, "JapaneseVowels-agf-seed0").train.epochs == 7
    assert settings(plan, "Heartbeat-agf-seed0").train.epochs == 8


def test_a_value_that_gives_steps_switches_epochs_off(loaded):
    plan = loaded(STUDY.replace("[0, 1]", "[0, {value: 1, set: {train.steps: 9}}]"))
    first, second = (
        settings(plan, "Heartbeat-agf-seed0").train,
        settings(plan, "Heartbeat-agf-seed1").train,
    )
    assert (first.epochs, first.steps, second.epochs, second.steps) == (20, None, None, 9)


@pytest.mark.parametrize(
    ("only", "left"),
    [
        ("[JapaneseVowels]", []),
        ("[JapaneseVowels, seed0, seed1]", []),
        ("[JapaneseVowels, Heartbeat, seed1]", ["Heartbeat-softmax-seed1"]),
    ],
)
def test_a_value_may_be_for_some_runs(loaded, only, left):
    plan = loaded(STUDY.replace("softmax]", f"{{name: softmax, only: {only}}}]"))
    assert labels(plan)[-2 - len(left) :] == ["Heartbeat-agf-seed0", "Heartbeat-agf-seed1", *left]
    again = loaded(plan.text)
    assert (again.runs, again.text) == (plan.runs, plan.text)


@pytest.mark.parametrize("label", ["agf", "subquad:softmax"])
def test_a_value_beside_is_known_by_its_label_alone(refused, base_text, label):
    shown = label if label == "agf" else f"'{label}'"
    text = f"""matrix:
  mixer: [{{name: softmax, label: wide}}, {{name: agf, label: first}}]
  seed: [{{value: 0, beside: {{'{label}': {{train.lr: 0.5}}}}}}]
"""
    assert refused(base_text + text) == (
        f"exp.yaml:12: matrix.seed[0].beside.{shown}: no value has the label '{label}'; "
        "there is wide, first"
    )


def test_overrides_come_after_what_values_set(loaded):
    plan = loaded(BRINGING, "train.epochs=3", "mixer.params={}", "name=quick")
    assert {cell.experiment.train.epochs for cell in plan.runs} == {3}
    assert settings(plan, "Heartbeat-agf-seed0").mixer.params["order"] == 3
    assert plan.name == "quick"


def test_an_axis_may_be_replaced_and_with_it_what_its_values_set(loaded):
    plan = loaded(
        BRINGING, "matrix.seed=[7]", "matrix.dataset=[{name: uea, params: {problem: Cricket}}]"
    )
    assert labels(plan) == ["Cricket-agf-seed7", "Cricket-softmax-seed7"]
    assert settings(plan, "Cricket-agf-seed7").train.epochs == 20


def test_an_axis_may_be_added_to_a_single_experiment(loaded, base_text):
    plan = loaded(base_text, "matrix.mixer=[agf, softmax]", "matrix.train.lr=[1e-3, 3e-4]")
    assert labels(plan) == ["agf-lr0.001", "agf-lr0.0003", "softmax-lr0.001", "softmax-lr0.0003"]
    # the base's, as the plugin is the same
    assert plan.runs[0].experiment.mixer.params["order"] == 4
    assert plan.runs[0].axes == {"mixer": "agf", "train.lr": 0.001}


def test_seed_and_train_seed_are_one_axis(loaded):
    assert len(loaded(STUDY, "matrix.train.seed=[4]").runs) == 4


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        ("mixer: [{name: agf, params: {order: 2}, label: agf2}, agf]", ["agf2", "agf"]),
        ("mixer: ['subquad:softmax']", ["softmax"]),
        ("train.lr: [0.1, 1e-5]", ["lr0.1", "lr1e-05"]),
        ("train.lr: [{value: 0.1, label: high}, 0.01]", ["high", "lr0.01"]),
        ("train.schedule: [linear, one-cycle]", ["linear", "one-cycle"]),
        ("train.clip_norm: [null, 4.0]", ["clip_norm-null", "clip_norm4.0"]),
        ("train.compile: [true, false]", ["compiletrue", "compilefalse"]),
        ("mixer.params.jacobi_a: [-0.5]", ["jacobi_a-0.5"]),
        ("protocol: [honest, fixed]", ["honest", "fixed"]),
        ("dataset.params.path: [./a b/c, /x]", ["a_b_c", "x"]),
        ("train.steps: [5, 6]", ["steps5", "steps6"]),
        ("mixers.0.layers: [[0], [0, -1]]", ["layers_0", "layers_0_-1"]),
    ],
)
def test_labels_are_safe_names(loaded, base_text, axis, expected):
    if axis.startswith("mixers"):
        base_text = (
            base_text.replace("num_layers: 2", "num_layers: 3") + "mixers: [{name: softmax}]\n"
        )
    assert labels(loaded(base_text + f"matrix:\n  {axis}\n")) == expected


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (
            "matrix: [1]",
            "exp.yaml:10: matrix: got [1], must be a mapping of keys to lists, as in seed: [0, 1]",
        ),
        (
            "matrix: {}",
            "exp.yaml:10: matrix: got an empty mapping, must be a mapping of keys "
            "to lists, as in seed: [0, 1]",
        ),
        (
            "matrix: {seed: 3}",
            "exp.yaml:10: matrix.seed: got 3, must be a list of values, as in [3]",
        ),
        (
            "matrix: {seed: []}",
            "exp.yaml:10: matrix.seed: got [], must be a list of values, as in [0, 1]",
        ),
        (
            "matrix: {seed: [0, 0]}",
            "exp.yaml:10: matrix.seed[1]: has the label 'seed0', as matrix.seed[0] "
            "has; give one of them another label",
        ),
        (
            "matrix: {mixer: [agf, {name: agf, params: {order: 2}}]}",
            "exp.yaml:10: matrix.mixer[1]: has the label 'agf', as matrix.mixer[0] "
            "has; give one of them another label",
        ),
        (
            "matrix: {mixer: [5]}",
            'exp.yaml:10: matrix.mixer[0].name: got 5, must be text that is not empty; write "5"',
        ),
        (
            "matrix: {mixer: [{name: agf, lable: x}]}",
            "exp.yaml:10: matrix.mixer[0].lable: unknown key; did you mean 'label'?",
        ),
        (
            "matrix: {mixer: [{name: agf, label: a/b}]}",
            "exp.yaml:10: matrix.mixer[0].label: got 'a/b', must be text of "
            "at most 100 letters, digits, '.', '_' and '-', beginning with a letter or digit",
        ),
        (
            "matrix: {mixer: [{name: agf, params: 1}]}",
            "exp.yaml:10: matrix.mixer[0].params: got 1, must be a mapping",
        ),
        (
            "matrix: {train.lr: [{label: x}]}",
            "exp.yaml:10: matrix.train.lr[0].value: missing",
        ),
        (
            "matrix: {name: [a, b]}",
            "exp.yaml:10: matrix.name: cannot be an axis; axes are components, "
            "seed, or settings such as train.lr",
        ),
        (
            "matrix: {seed: [0], train.seed: [1]}",
            "exp.yaml:10: matrix.train.seed: sets the same as the axis seed; keep one of them",
        ),
        (
            "matrix: {seed: [0], train.lr: [x]}",
            "exp.yaml:10: train.lr: got 'x', must be a number > 0 (run x-seed0)",
        ),
        (
            "matrix: {mixr: [agf]}",
            "exp.yaml:10: mixr: unknown key; did you mean 'mixer'? (run agf)",
        ),
        (
            "matrix: {mixer: [softmax, agff]}",
            "exp.yaml:10: mixer.name: unknown mixer 'agff'; did you mean 'agf'? "
            "(`subquad list mixer` shows what is "
            "installed) (run agff)",
        ),
        (
            "baseline: agf",
            "exp.yaml:1: matrix: missing, must be a mapping of keys to lists, as in seed: [0, 1]",
        ),
    ],
)
def test_what_is_no_matrix(refused, base_text, study, message):
    assert refused(f"{base_text}{study}\n") == message


@pytest.mark.parametrize(
    ("brings", "message"),
    [
        ("set: 1", "softmax.set: got 1, must be a mapping"),
        ("sett: {}", "softmax.sett: unknown key; did you mean 'set'?"),
        ("beside: {agf: 1}", "beside.agf: got 1, must be a mapping"),
        (
            "beside: {sed0: {train.lr: 1}}",
            "beside.sed0: no value has the label 'sed0'; did you mean",
        ),
        (
            "beside: {softmax: {train.lr: 1}}",
            "beside.softmax: no value has the label 'softmax'; there is",
        ),
        ("only: [sed0]", "only: no value has the label 'sed0'; did you mean 'seed0'?"),
        ("only: agf", "only: got 'agf', must be a list"),
        (
            "only: [JapaneseVowels], beside: {Heartbeat: {train.lr: 1}}",
            "softmax.beside.Heartbeat: means no run, as `only` names others",
        ),
        (
            "set: {train.seed: 1}",
            "exp.yaml:9: train.seed: cannot be set, as seed is an axis of this study; "
            "leave it out here",
        ),
        (
            "set: {mixer: agf}",
            "exp.yaml:9: mixer: cannot be set, as mixer is an axis of this study; "
            "leave it out here",
        ),
        (
            "set: {dataset.params.problem: X}",
            "exp.yaml:9: dataset.params.problem: cannot be set, as dataset is an axis of this "
            "study; leave it out here",
        ),
        ("set: {name: x}", "set.name: cannot be set for some runs, as settings such as train.lr"),
        (
            "set: {mixer.params.order: 2}",
            "exp.yaml:9: mixer.params.order: unknown key; there is bias, qk_norm, rotary, "
            "dropout, kernel (run JapaneseVowels-softmax-seed0)",
        ),
    ],
)
def test_what_a_value_cannot_bring_along(refused, brings, message):
    said = refused(STUDY.replace("softmax]", f"{{name: softmax, {brings}}}]"))
    assert said.startswith("exp.yaml:9: ")
    assert message.replace("softmax.", "matrix.mixer[1].") in said


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "mixer=agf",
            "override 'mixer=agf': mixer: cannot be set, as mixer is an axis of "
            "this study; give the axis, as in "
            "matrix.mixer=[...]",
        ),
        (
            "train.seed=3",
            "override 'train.seed=3': train.seed: cannot be set, as seed is an "
            "axis of this study; give the axis, as "
            "in matrix.seed=[...]",
        ),
        (
            "matrix=3",
            "override 'matrix=3': matrix: got 3, must be a mapping of keys to "
            "lists, as in seed: [0, 1]",
        ),
        (
            "matrix.seed=3",
            "override 'matrix.seed=3': matrix.seed: got 3, must be a list of values, as in [3]",
        ),
        (
            "matrix.train.lr=[1, x]",
            "override 'matrix.train.lr=[1, x]': train.lr: got 'x', must be a number > 0 (run "
            "JapaneseVowels-agf-x-seed0)",
        ),
        ("runs=[]", "override 'runs=[]': runs: can only be given in a file"),
    ],
)
def test_overrides_of_a_study_that_are_refused(refused, override, message):
    assert refused(STUDY, override) == message


def test_a_study_whose_values_leave_no_run(refused):
    text = STUDY.replace("[agf, softmax]", "[{name: agf, only: [seed1]}]")
    assert refused(text, "matrix.seed=[0]") == (
        "exp.yaml:5: matrix: has no run: no values stand beside each other, by their own `only`"
    )


def test_too_many_cells(refused, base_text):
    numbers = ", ".join(map(str, range(101)))
    text = f"{base_text}matrix:\n  seed: [{numbers}]\n  train.batch_size: [{numbers}]\n"
    assert refused(text) == (
        "exp.yaml:10: matrix: 101 train.batch_size x 101 seed makes 10,201 runs, "
        "must be at most 10,000"
    )


CORPORA = (
    "matrix.dataset=[{name: corpora, params: {corpus: a b, folder: x}}, {name: "
    "corpora, label: mine}, corpora]"
)


def test_a_data_sets_label_is_its_plugins(loaded):
    plan = loaded(
        STUDY, CORPORA, "matrix.mixer=[agf]", "matrix.seed=[0]", "dataset.params.folder=y"
    )
    assert [cell.label for cell in plan.runs] == [
        f"{name}-agf-seed0" for name in ("a_b-8", "mine", "small-8")
    ]
    assert [cell.dataset_label for cell in plan.runs] == ["a b-8", "small-8", "small-8"]


def test_what_the_label_of_a_data_set_says_cannot_be_set(refused):
    assert refused(STUDY, CORPORA, "dataset.params.corpus=c") == (
        "override 'dataset.params.corpus=c': dataset.params.corpus: cannot be set, "
        "as dataset is an axis of this "
        "study; give the axis, as in matrix.dataset=[...]"
    )


def test_a_label_too_long_for_a_folder(refused, base_text):
    text = f"{base_text}matrix:\n  tracking.uri: [{'x' * 201}]\n"
    assert (
        refused(text)
        == "exp.yaml:10: matrix: a run's label has 201 characters, must be at most 200; give labels"
    )


def test_two_cells_of_one_label(refused, base_text):
    text = (
        base_text + "matrix:\n  protocol: [{value: honest, label: a-b}, {value: fixed, label: a}]\n"
    )
    text += "  train.lr: [{value: 1, label: c}, {value: 2, label: b-c}]\n"
    assert (
        refused(text)
        == "exp.yaml:10: matrix: two runs have the label a-b-c; give their values other labels"
    )
