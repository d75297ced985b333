"""A check of a mixer that misbehaves: nothing gets through, nothing is left changed."""

from __future__ import annotations

import sys
import warnings

import pytest
import torch
from torch import nn

from subquad.errors import PluginError
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig
from subquad.testing import Check, CheckCase, Finding, certify
from subquad.testing.subject import check_subjects


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


def outcome(run, mixer=Quiet, exclude=None):
    (subject,) = check_subjects(mixer)
    return CheckCase(Check(name="one", shows="", run=run), subject, exclude or {}).outcome()


def calls(subject):
    subject.build()(subject.tokens(1, 3))
    return Finding("called")


def test_an_exception_of_the_mixer_is_a_failure_in_one_line():
    found = outcome(calls, Broken)
    assert found.status == "failed"
    assert found.detail.startswith("RuntimeError: size mismatch in two lines (")
    assert "test_run_check.py:" in found.detail
    assert 'raise RuntimeError("size mismatch' in found.traceback


def test_leaving_the_interpreter_is_a_failure():
    assert outcome(calls, Exits).detail.startswith("it called sys.exit(3)")


def test_a_mixer_that_cannot_be_built_fails_every_check():
    certificate = certify(Unbuilt, only=["shapes", "losses", "cache-step"])
    assert {one.status for one in certificate.outcomes} == {"failed"}
    assert all("cannot be built for layer 0: KeyError: 'width'" in one.detail for one in certificate.outcomes)


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
    found = outcome(calls, Broken, {"one": "known"})
    assert (found.status, found.detail) == ("excluded", "by the user: known")


def test_equal_arguments_build_equal_mixers():
    (subject,) = check_subjects(Quiet)
    first, second, other = subject.build(), subject.build(), subject.build(seed=1)
    assert torch.equal(first.value.weight, second.value.weight)
    assert not torch.equal(first.value.weight, other.value.weight)
    assert not first.training
