"""Wrong types and unknown keys: the whole message, from files and from overrides."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lr: abs", "exp.yaml:9: train.lr: got 'abs', must be a number > 0"),
        (
            "lr: '1e-3'",
            "exp.yaml:9: train.lr: got '1e-3', must be a number > 0; leave out the quotes",
        ),
        ("lr: 0", "exp.yaml:9: train.lr: got 0, must be a number > 0"),
        ("lr: null", "exp.yaml:9: train.lr: got null, must be a number > 0"),
        ("lr: [1e-3]", "exp.yaml:9: train.lr: got [0.001], must be a number > 0"),
        ("lr: {a: 1}", "exp.yaml:9: train.lr: got a mapping, must be a number > 0"),
        ("lr: ${oc.env:LR}", "exp.yaml:9: train.lr: got '${oc.env:LR}', must be a number > 0"),
        ("lr: true", "exp.yaml:9: train.lr: got true, must be a number > 0"),
        ("epochs: 2.0", "exp.yaml:9: train.epochs: got 2.0, must be a whole number >= 1 or null"),
        ("tf32: yes", "exp.yaml:9: train.tf32: got 'yes', must be true or false"),
        ("tf32: 1", "exp.yaml:9: train.tf32: got 1, must be true or false"),
        ("beta1: 1", "exp.yaml:9: train.beta1: got 1, must be a number >= 0 and < 1"),
        (
            "seed: 4294967296",
            "exp.yaml:9: train.seed: got 4294967296, must be a whole number >= 0 and < 4294967296",
        ),
        (
            "optimizer: adan",
            "exp.yaml:9: train.optimizer: got 'adan', must be one of adamw, adam, radam, sgd; "
            "did you mean 'adam'?",
        ),
        ("lrr: 1", "exp.yaml:9: train.lrr: unknown key; did you mean 'lr'?"),
        ("learning_rate: 1", "exp.yaml:9: train.learning_rate: unknown key; did you mean 'lr'?"),
        ("order: 3", "exp.yaml:9: train.order: unknown key; it belongs at mixer.params.order"),
        ("workers: 2", "exp.yaml:9: train.workers: unknown key; it belongs at resources.workers"),
        ("gpus: 2", "exp.yaml:9: train.gpus: unknown key; did you mean resources.gpus_per_worker?"),
        ("ordr: 2", "exp.yaml:9: train.ordr: unknown key; did you mean mixer.params.order?"),
    ],
)
def test_a_line_of_the_train_section(refused, base_text, line, message):
    head = base_text.splitlines()[:8]
    if line.startswith("epochs"):
        head[6] = "  # the epochs are below"
    text = "\n".join([*head, f"  {line}"])
    assert refused(text) == message


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lr=abc", "override 'train.lr=abc': train.lr: got 'abc', must be a number > 0"),
        ("lr=1", "override 'lr=1': lr: unknown key; it belongs at train.lr"),
        ("trian.lr=1", "override 'trian.lr=1': trian: unknown key; did you mean 'train'?"),
        (
            "matirx.seed=[0]",
            "override 'matirx.seed=[0]': matirx: unknown key; did you mean 'matrix'?",
        ),
        ("basline=agf", "override 'basline=agf': basline: unknown key; did you mean 'baseline'?"),
        ("train=5", "override 'train=5': train: got 5, must be a mapping"),
        ("format=2", "override 'format=2': format: got 2, must be 1"),
        (
            "mixer.params.order=33",
            "override 'mixer.params.order=33': mixer.params.order: got 33, must be "
            "a whole number >= 0 and <= 32",
        ),
        (
            "mixer.order=3",
            "override 'mixer.order=3': mixer.order: unknown key; it belongs at mixer.params.order",
        ),
        (
            "mixer._target_=os.system",
            "override 'mixer._target_=os.system': mixer._target_: unknown key; "
            "there is name, params",
        ),
        (
            "task.params.x=1",
            "override 'task.params.x=1': task.params.x: unknown key; there is label_smoothing",
        ),
        (
            "mixer=5",
            "override 'mixer=5': mixer: got 5, must be a plugin's name, or a "
            "mapping of name and params",
        ),
        (
            "dataset.params.problem=5",
            "override 'dataset.params.problem=5': dataset.params.problem: got 5, "
            "must be text of at most 100 letters, "
            "digits, '.', '_' and '-', beginning with a letter or digit; write \"5\"",
        ),
        (
            "tracking.uri=''",
            "override \"tracking.uri=''\": tracking.uri: got '', must be text that "
            "is not empty or null",
        ),
    ],
)
def test_an_override(refused, base_text, override, message):
    assert refused(base_text, override) == message


def test_a_huge_width_is_refused_at_once(refused, base_text):
    """No divisor of such a number is looked for."""
    override = f"backbone.params.dim={2**63 - 1}"
    assert refused(base_text, override) == (
        f"override {override!r}: backbone.params.dim: got {2**63 - 1}, must be a "
        "whole number >= 1 and <= 1048576"
    )


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "/etc",
        "",
        "a b",
        "x" * 101,
        "é",
        "🙂",
        ".hidden",
        "-x",
        "a/b",
        "a\\b",
        "con\n",
        "a:b",
    ],
)
def test_names_that_would_leave_the_runs_folder(refused, base_text, name):
    message = refused(
        base_text.replace(
            "name: base", f"name: {name!r}" if "\n" not in name else 'name: "con\\n"', 1
        )
    )
    assert message.startswith("exp.yaml:1: name: got ")
    assert "must be text of at most 100 letters" in message


def test_a_missing_component_names_what_it_must_be(refused):
    assert refused("dataset: uea\nbackbone: encoder\nmixer: agf\n") == (
        "exp.yaml:1: task: missing, must be a plugin's name, or a mapping of name and params"
    )


def test_an_unknown_key_is_told_before_what_it_makes_missing(refused, base_text):
    assert refused(base_text.replace("mixer:", "mixxer:")) == (
        "exp.yaml:5: mixxer: unknown key; did you mean 'mixer'? (and 1 more)"
    )


def test_of_several_errors_the_first_line_is_told_and_the_others_are_counted(refused, base_text):
    assert refused(base_text + "  seed: -1\n  eps: 0\n", "train.beta2=2") == (
        "override 'train.beta2=2': train.beta2: got 2, must be a number >= 0 and < 1 (and 2 more)"
    )


def test_errors_in_several_plugins_are_counted_together(refused, base_text):
    text = base_text.replace("order: 4", "ordr: 4").replace("num_layers: 2", "num_layers: 0")
    assert (
        refused(text)
        == "exp.yaml:5: mixer.params.ordr: unknown key; did you mean 'order'? (and 1 more)"
    )


def test_an_unknown_plugin_names_line_and_nearest(refused, base_text):
    message = refused(base_text.replace("name: agf", "name: agff"))
    assert message.startswith("exp.yaml:5: mixer.name: unknown mixer 'agff'; did you mean 'agf'?")


def test_a_required_parameter_that_is_missing(refused, base_text):
    assert refused(base_text.replace("{problem: JapaneseVowels}", "{}")) == (
        "exp.yaml:2: dataset.params.problem: missing, must be text of at most 100 "
        "letters, digits, '.', '_' and '-', "
        "beginning with a letter or digit"
    )


def test_a_list_may_fill_a_tuple_and_its_items_are_named(loaded, refused, base_text):
    text = base_text.replace(
        "{name: agf, params: {order: 4}}", "{name: block, params: {window: [3, 4]}}"
    )
    assert loaded(text).runs[0].mixer_config.model_dump()["window"] == (3, 4)
    assert refused(text.replace("[3, 4]", "[3, x]")) == (
        "exp.yaml:5: mixer.params.window[1]: got 'x', must be a whole number"
    )
    assert refused(text.replace("[3, 4]", "[3]")) == (
        "exp.yaml:5: mixer.params.window[1]: missing, must be a whole number"
    )


def test_a_plugin_whose_check_fails_is_blamed_for_it(refused, base_text):
    message = refused(base_text.replace("{name: agf, params: {order: 4}}", "broken"))
    assert "cannot check where it stands: KeyError: 'oops'" in message


def test_long_values_are_cut(refused, base_text):
    assert refused(base_text, f"train.lr={'x' * 5000}").endswith(
        f"got '{'x' * 57}...', must be a number > 0"
    )


def test_control_characters_of_a_key_are_shown_as_escapes(refused, base_text):
    assert "unknown key" in refused(base_text + '"a\\nb\\e[31m": 1\n')
    assert "a\\nb\\x1b[31m" in refused(base_text + '"a\\nb\\e[31m": 1\n')


@pytest.mark.parametrize("key", ["extends", "matrix", "runs", "baseline"])
def test_a_typo_in_a_key_of_studies_gets_its_suggestion(refused, base_text, key):
    typo = key[:2] + key[3:]
    line = len(base_text.splitlines()) + 1
    assert (
        refused(f"{base_text}{typo}: x\n")
        == f"exp.yaml:{line}: {typo}: unknown key; did you mean '{key}'?"
    )


def test_a_refusal_names_the_line_of_the_parameter_that_it_is_about(refused, base_text):
    """What a plugin's own rule is about is data of the refusal, not a word of its message."""
    params = "mixer:\n  name: agf\n  params:\n    order: 4\n    basis: monomial\n    jacobi_a: 2\n"
    text = base_text.replace("mixer: {name: agf, params: {order: 4}}\n", params)
    assert refused(text).startswith("exp.yaml:10: mixer.params: jacobi_a 2.0 has no effect")
    assert refused(text, "mixer.params.jacobi_a=3").startswith("override 'mixer.params.jacobi_a=3'")
    fine = text.replace("    jacobi_a: 2\n", "")
    assert refused(fine.replace("monomial", "x")).startswith("exp.yaml:9: mixer.params.basis: got")
