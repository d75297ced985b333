"""A check of a mixer that misbehaves: nothing gets through, nothing is left changed."""

from __future__ import annotations

import contextlib
import sys
import warnings

import pytest
import torch
from torch import nn

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig
from subquad_check import Check, CheckCase, Finding, certify
from subquad_check.cases import compares
from subquad_check.checks import CHECKS
from subquad_check.subject import check_subjects

QUICK = [check.name for check in CHECKS if not check.name.startswith(("compiled", "complexity"))]


class Quiet(TokenMixer):
    """Returns what it is given."""

    Config = MixerConfig
    facts = Facts()

    def __init__(self, config, site):
        super().__init__()
        self.value = nn.Linear(site.dim, site.dim)

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x)


class Broken(Quiet):
    """Raises in the middle."""

    def forward(self, x, *, keep=None, carry=None):
        raise RuntimeError("size mismatch\nin two lines")


class Exits(Quiet):
    """Leaves the interpreter."""

    def forward(self, x, *, keep=None, carry=None):
        sys.exit(3)


class Unbuilt(Quiet):
    """Cannot be built."""

    def __init__(self, config, site):
        raise KeyError("width")


class Single(Quiet):
    """Has a matrix of its own that stays in float32."""

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x @ torch.eye(x.shape[-1]))


class NaNs(Quiet):
    """Has a weight that is no number."""

    def __init__(self, config, site):
        super().__init__(config, site)
        nn.init.constant_(self.value.bias, torch.nan)


class BrokenInTraining(Quiet):
    """Has no gradient."""

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x)
        if self.training:
            out.register_hook(self.refuse)
        return out

    def refuse(self, grad):
        raise RuntimeError("no backward pass")


class Endless(Quiet):
    """Never comes back, and does not want to be stopped."""

    def forward(self, x, *, keep=None, carry=None):
        while True:
            with contextlib.suppress(Exception):
                x = x + 1


class Spoiled(Quiet):
    """One number is NaN where a sequence is longer than 40 tokens."""

    def forward(self, x, *, keep=None, carry=None):
        out = super().forward(x)
        out[:, 40:41, 2] = torch.nan
        return out


def outcome(run, mixer=Quiet, exclude=None, name="shapes", seconds=60.0):
    (subject,) = check_subjects(mixer)
    return CheckCase(Check(name=name, shows="", run=run), subject, exclude or {}, seconds).outcome()


def calls(subject):
    subject.build()(subject.tokens(1, 3))
    return Finding("called")


def test_an_exception_of_the_mixer_is_a_failure_in_one_line():
    found = outcome(calls, Broken)
    assert found.status == "failed"
    assert found.detail.startswith("RuntimeError: size mismatch in two lines (")
    assert "test_run_check.py:" in found.detail
    assert 'raise RuntimeError("size mismatch' in found.traceback


@pytest.mark.parametrize(
    ("mixer", "reason"),
    [
        (Broken, "its first call fails: RuntimeError: size mismatch in two lines ("),
        (BrokenInTraining, "its first call fails: RuntimeError: no backward pass ("),
        (NaNs, "its first call fails: CheckFailed: its first call in evaluation: output and "),
        (Unbuilt, "its first call fails: PluginError: "),
    ],
)
def test_one_cause_is_one_failure_and_the_rest_is_not_tested(mixer, reason):
    certificate = certify(mixer, only=QUICK)
    found = {outcome.check: outcome for outcome in certificate.outcomes}
    assert [name for name, outcome in found.items() if outcome.status == "failed"] == ["shapes"]
    notes = dict(certificate.notes("not proven"))
    (note,) = notes
    assert f": not tested, because {reason}" in note
    assert "strides" in note
    assert notes[note] == ""
    assert found["leak"].status == "passed"
    assert not certificate.holds


def test_what_runs_in_float32_alone_is_tested_there():
    certificate = certify(Single, only=QUICK)
    assert [row.check for row in certificate.outcomes if row.status == "failed"] == ["devices"]
    assert certificate.count("not proven") == 0
    assert certificate.unchecked[0] == "anything finer than float32: 1e-05 is allowed for 1e-09"


def test_a_check_that_takes_too_long_is_stopped():
    found = outcome(calls, Endless, seconds=0.05)
    assert found.status == "not proven"
    assert found.detail == "not tested: too slow: more than 0.05 s of CPU time"
    assert outcome(calls).status == "passed"


def test_a_failure_says_where_it_was_called_and_which_number_is_none():
    found = {outcome.check: outcome for outcome in certify(Spoiled, only=["lengths"]).outcomes}
    assert found["lengths"].detail == (
        "length 63 in evaluation: output and losses: NaN or infinity in 2 of 2016 numbers, the "
        "first at sample 0, token 40, number 2 (float64, 63 tokens, evaluation, role self)"
    )


def test_the_largest_difference_of_a_check_is_told():
    x = torch.ones(1, 4, 2)

    @compares("")
    def _numbers(subject):
        for length, size in {3: 1e-6, 300: 0.5, 30: 1e-3, 1: 0.0}.items():
            yield f"output of {length} tokens", x + size, x, x
        raise ValueError("behind it")

    assert outcome(_numbers.run).detail == (
        "output of 300 tokens: differs by 5.0e-01 of the largest output, allowed 1.0e-09; the "
        "largest of 3 differences in 4 comparisons"
    )


def test_numbers_that_are_none_are_larger_than_any_difference():
    x = torch.ones(2, 4, 3)

    @compares("")
    def _numbers(subject):
        wrong = x.clone()
        wrong[1, 2:] = torch.nan
        yield "output", x + 1, x
        yield "output at the end", wrong[:, 2], x[:, 2], wrong

    assert outcome(_numbers.run).detail.startswith(
        "output at the end: has NaN or infinity in 6 of 24 numbers, the first at sample 1, "
        "token 2, number 0, allowed 1.0e-09; the largest of 2"
    )


def test_leaving_the_interpreter_is_a_failure():
    assert outcome(calls, Exits).detail.startswith("it called sys.exit(3)")


def test_an_error_of_subquad_keeps_its_words():
    def run(subject):
        raise PluginError("Quiet takes 3 positions, got 4")

    assert outcome(run).detail == "PluginError: Quiet takes 3 positions, got 4"


def test_ctrl_c_goes_through():
    def run(subject):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcome(run)


def test_warnings_are_kept_quiet_and_state_is_put_back():
    before, threads = torch.get_rng_state(), torch.get_num_threads()

    def run(subject):
        warnings.warn("loud", stacklevel=1)
        torch.manual_seed(99)
        torch.set_default_dtype(torch.float64)
        return Finding("done")

    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        assert outcome(run).status == "passed"
    assert not caught
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_num_threads() == threads


def test_gradients_are_on_whatever_the_caller_has_switched_off():
    with torch.no_grad():
        assert outcome(lambda subject: Finding(str(torch.is_grad_enabled()))).detail == "True"


def test_a_check_left_out_by_hand_says_so():
    found = outcome(calls, Broken, {"shapes": "known"})
    assert (found.status, found.detail) == ("excluded", "by the user: known")


def test_equal_arguments_build_equal_mixers():
    (subject,) = check_subjects(Quiet)
    first, second, other = subject.build(), subject.build(), subject.build(seed=1)
    assert torch.equal(first.value.weight, second.value.weight)
    assert not torch.equal(first.value.weight, other.value.weight)
    assert not first.training


class Untouched(Quiet):
    """A layer that nobody calls, and a dict with a tensor."""

    def __init__(self, config, site):
        super().__init__(config, site)
        self.spare = nn.Linear(site.dim, 1, bias=False)
        self.kept = {"table": torch.ones(2)}


@pytest.mark.parametrize(
    ("check", "detail"),
    [
        (
            "parameters-used",
            "no gradient for spare.weight (float64, 64 tokens, training, role self)",
        ),
        ("state-registered", "kept holds a tensor that is neither a parameter nor a buff"),
    ],
)
def test_a_weight_is_named_once_and_with_the_length(check, detail):
    (found,) = certify(Untouched, only=[check]).outcomes
    assert found.detail.startswith(detail)


class Bound(Quiet):
    """Has a weight for each position."""

    facts = Facts(max_length="site")

    def __init__(self, config, site):
        super().__init__(config, site)
        self.table = nn.Parameter(torch.ones(site.max_len, 1))

    def forward(self, x, *, keep=None, carry=None):
        return super().forward(x) * self.table[: x.shape[1]]


class BoundUnawares(Bound):
    """Does not say so."""

    facts = Facts()


def test_subquad_refuses_longer_sequences_than_a_bound_mixer_was_built_for():
    (found,) = certify(Bound, only=["max-length"]).outcomes
    refusal = "Bound: got 65 positions, and it was built for 64"
    assert (found.status, found.detail) == ("passed", f"65 positions refused: {refusal}")
    (subject,) = check_subjects(Bound)
    with pytest.raises(PluginError, match=refusal):
        subject.build()(x=subject.tokens(1, 65))


def test_who_is_bound_and_does_not_say_so_is_told_what_to_claim():
    (found,) = certify(BoundUnawares, only=["max-length"]).outcomes
    assert found.status == "failed"
    assert found.detail.startswith("longer than max_len 64, 193 positions: RuntimeError: The size")
    assert 'if it is bound to that, claim max_length="site" (float64, 193 tokens' in found.detail


def set_memory(mixer):
    mixer.memory = nn.Parameter(torch.ones(3))


def set_step(mixer):
    mixer.step = 3


def set_prefill(mixer):
    mixer.prefill = nn.Linear(2, 2)


def set_caches(mixer):
    mixer.register_buffer("caches", torch.ones(2))


@pytest.mark.parametrize("assign", [set_memory, set_step, set_prefill, set_caches])
def test_an_attribute_that_hides_a_method_is_told_at_once(assign):
    class Hiding(Quiet):
        def __init__(self, config, site):
            super().__init__(config, site)
            assign(self)

    (subject,) = check_subjects(Hiding)
    name = assign.__name__.removeprefix("set_")
    reason = f"self.{name} is a method of every mixer: give that attribute another name"
    with pytest.raises(PluginError, match=rf"Hiding.*: {reason}$"):
        subject.build()


def test_what_a_class_makes_a_plain_attribute_may_be_set():
    class Deciding(Quiet):
        caches = False  # pyright: ignore[reportAssignmentType]

        def __init__(self, config, site):
            super().__init__(config, site)
            self.caches = site.causal

    (subject,) = check_subjects(Deciding)
    assert subject.build().caches is False
