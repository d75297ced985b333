"""What a space file may not say, whatever the experiment: the whole message."""

from __future__ import annotations

import pytest

O = "mixer.params.order"  # noqa: E741


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{O}: [1, 2]", f"2: {O}: got [1, 2], must be a mapping such as {{choice: [1, 2]}}"),
        (
            f"{O}: {{}}",
            f"2: {O}: must have one of choice, uniform, loguniform, int, has none",
        ),
        (
            f"{O}: {{int: [2, 4], choice: [1]}}",
            f"2: {O}: must have one of choice, uniform, loguniform, int, has choice and int",
        ),
        (f"{O}: {{choise: [1]}}", f"2: {O}.choise: unknown key; did you mean 'choice'?"),
        (f"{O}: {{choice: []}}", f"2: {O}.choice: got [], must be a list of values, as in [1, 2]"),
        (f"{O}: {{choice: 3}}", f"2: {O}.choice: got 3, must be a list of values, as in [1, 2]"),
        (f"{O}: {{choice: [2, 3, 2.0]}}", f"2: {O}.choice[2]: 2.0 is given twice"),
        (
            f"{O}: {{choice: [{{a: 1}}]}}",
            f"2: {O}.choice[0]: got a mapping, must be a plain value, or a list of them",
        ),
        (f"{O}: {{choice: [1], step: 2}}", f"2: {O}.step: has no effect with choice; leave it out"),
        (
            f"{O}: {{int: [2]}}",
            f"2: {O}.int: got [2], must be the smallest and the largest value, as in [2, 10]",
        ),
        (f"{O}: {{int: [10, 2]}}", f"2: {O}.int: [10, 2] holds nothing; write [2, 10]"),
        (f"{O}: {{int: [3, 3]}}", f"2: {O}.int: [3, 3] is one value; set it in the experiment"),
        (f"{O}: {{int: [2, 4.5]}}", f"2: {O}.int[1]: got 4.5, must be a whole number"),
        (f"{O}: {{int: [2, true]}}", f"2: {O}.int[1]: got true, must be a whole number"),
        (
            f"{O}: {{int: [2, 9], step: 2}}",
            f"2: {O}.step: steps of 2 from 2 never reach 9; end at 8 or 10",
        ),
        (f"{O}: {{int: [2, 9], step: 0}}", f"2: {O}.step: got 0, must be a whole number >= 1"),
        (
            f"{O}: {{int: [1, 9], step: 2, log: true}}",
            f"2: {O}.step: has no effect on a log scale; leave it or log out",
        ),
        (
            f"{O}: {{int: [0, 9], log: true}}",
            f"2: {O}.int: starts at 0, which has no logarithm; begin above 0, or use log: false",
        ),
        (f"{O}: {{int: [1, 9], log: 1}}", f"2: {O}.log: got 1, must be true or false"),
        (
            "train.lr: {loguniform: [0, 1]}",
            "2: train.lr.loguniform: starts at 0, which has no logarithm; begin "
            "above 0, or use uniform, or a choice "
            "with 0 in it",
        ),
        (
            "train.lr: {uniform: [1e-4, 1], log: true}",
            "2: train.lr.log: has no effect with uniform; leave it out, or use loguniform",
        ),
        ("train.lr: {uniform: [low, 1]}", "2: train.lr.uniform[0]: got 'low', must be a number"),
        ("train..lr: {choice: [1]}", "2: train.''.lr: is not a key; write one as in train.lr"),
        (
            f"{O}: {{choice: [1], when: jacobi}}",
            f"2: {O}.when: got 'jacobi', must be a mapping of settings to values, "
            f"as in {{train.optimizer: sgd}}",
        ),
        (
            f"{O}: {{choice: [1], when: {{mixer.params.basis: []}}}}",
            f"2: {O}.when.mixer.params.basis: got [], must be a list of values, as in [1, 2]",
        ),
    ],
)
def test_a_dimension(refused, line, message):
    assert refused(f"dims:\n  {line}\n") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", " is empty; it must say dims"),
        ("[1]", "1: got [1], must be a mapping with dims"),
        (
            "dims: {}",
            "1: dims: got an empty mapping, must be a mapping of settings, as in "
            "{train.lr: {choice: [1e-3]}}",
        ),
        (
            "mixer: agf",
            "1: dims: got null, must be a mapping of settings, as in {train.lr: {choice: [1e-3]}}",
        ),
        ("dim: {}", "1: dim: unknown key; did you mean 'dims'?"),
        (
            "mixer: [agf]\ndims: {}",
            '1: mixer: got ["agf"], must be the name of the mixer that it is for',
        ),
        (
            "dims:\n  a: {choice: [1]}\n  a: {choice: [2]}",
            "3:3: key a is given twice, on lines 2 and 3",
        ),
        ("dims:\n  a: {choice: [.nan]}", "2:16: .nan is not a finite number"),
    ],
)
def test_a_file(refused, text, message):
    assert refused(text) == message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("less", "2: constraints: got 'less', must be a list, as in [{less: [a, b]}]"),
        (
            "[less]",
            "2: constraints[0]: got 'less', must be a mapping with one of less, "
            "less_equal, divides, sum_not_in",
        ),
        ("[{lees: [a, b]}]", "2: constraints[0].lees: unknown key; did you mean 'less'?"),
        (
            "[{less: [a, a]}]",
            '2: constraints[0].less: got ["a", "a"], must be two different settings, as in [a, b]',
        ),
        (
            "[{divides: [a]}]",
            '2: constraints[0].divides: got ["a"], must be two different settings, as in [a, b]',
        ),
        (
            "[{sum_not_in: [a, b]}]",
            '2: constraints[0].sum_not_in: got ["a", "b"], must be a mapping such '
            "as {keys: [a, b], values: [-2, -3]}",
        ),
        (
            "[{sum_not_in: {keys: [a, b], values: [x]}}]",
            "2: constraints[0].sum_not_in.values[0]: got 'x', must be a number",
        ),
    ],
)
def test_a_constraint(refused, given, message):
    assert refused(f"dims: {{train.lr: {{choice: [1]}}}}\nconstraints: {given}\n") == message


def test_too_much_is_refused(refused):
    many = ", ".join(map(str, range(1001)))
    assert (
        refused(f"dims:\n  {O}: {{choice: [{many}]}}")
        == f"2: {O}.choice: has 1,001 values, must be at most 1,000"
    )
    lines = "".join(f"  a.b{number}: {{choice: [1]}}\n" for number in range(201))
    assert refused(f"dims:\n{lines}") == "1: dims: has 201 settings, must be at most 200"
