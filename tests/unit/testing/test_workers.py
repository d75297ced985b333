"""Certificates made side by side in processes."""

from __future__ import annotations

import multiprocessing

import pytest

from subquad.registry import resolve
from subquad.testing import certify
from subquad.testing.workers import CheckWorkers, _sendable, _Way

MIXER = '''
import os
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param

class Dies(TokenMixer):
    """Ends its process for one of its settings."""
    class Config(MixerConfig):
        dies: bool = param(False, meaning="end the process")
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)
        if config.dies:
            os._exit(11)

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x)
'''
CHECKS = ("shapes", "cross")


def way(name, number=0, origin="subquad:identity", params=None):
    return _Way(origin, params, {}, number, name, CHECKS, {"cross": "not today"})


def told(outcomes):
    return [(one.subject, one.check, one.status) for one in outcomes]


@pytest.mark.ci
def test_outcomes_come_in_order_and_a_process_that_dies_takes_only_its_own_way_with_it(tmp_path):
    path = tmp_path / "dies.py"
    path.write_text(MIXER)
    source = resolve("mixer", f"{path}:Dies").source
    assert source is not None
    dying = way("given", origin=source, params={"dies": True})
    path.unlink()  # the text travels
    ways = [way("default, causal"), dying, way("default", origin=source), way("default, causal")]
    with CheckWorkers(2) as workers:
        found = list(workers.outcomes(ways))
        again = list(workers.outcomes([way("default, causal")]))
    good = [("default, causal", "shapes", "passed"), ("default, causal", "cross", "excluded")]
    other = [("default", "shapes", "passed"), ("default", "cross", "excluded")]
    assert told(found) == [*good, ("given", "shapes", "failed"), ("given", "cross", "failed"), *other, *good]
    assert found[2].detail.startswith("the process that checked it died: ")
    assert found[1].detail == "by the user: not today"
    assert told(again) == good


@pytest.mark.ci
def test_a_certificate_is_the_same_with_processes_and_without():
    mixer = resolve("mixer", "wavelet")
    with CheckWorkers(2) as workers:
        side_by_side = certify(mixer, only=CHECKS, workers=workers)
    assert told(side_by_side.outcomes) == told(certify(mixer, only=CHECKS).outcomes)


@pytest.mark.ci
def test_processes_are_stopped_when_something_is_raised():
    def interrupted():
        with CheckWorkers(1) as workers:
            next(workers.outcomes([way("default, causal")] * 2))
            assert multiprocessing.active_children()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    for process in multiprocessing.active_children():
        process.join(20)
    assert not multiprocessing.active_children()


def test_no_process_is_started_for_nothing():
    with CheckWorkers(2) as workers:
        certify(resolve("mixer", "identity"), only=CHECKS, workers=workers)
        assert not multiprocessing.active_children()


def test_a_class_that_was_handed_over_cannot_travel():
    from subquad.nn import TokenMixer
    from subquad.plugin import Facts, MixerConfig
    from subquad.testing.subject import check_subjects

    class Here(TokenMixer):
        Config, facts = MixerConfig, Facts()

        def __init__(self, config, site):
            super().__init__()

        def forward(self, x, *, keep=None, carry=None):
            return x

    (here,) = check_subjects(Here)
    assert _sendable(here.resolved) is None
    assert _sendable(resolve("mixer", "agf")) == "subquad:agf"
