"""Certificates made side by side in processes."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from subquad.registry import resolve
from subquad_check import certify, check_mixer
from subquad_check.certificate import _sendable
from subquad_check.workers import CheckWorkers

MIXER = '''
import os
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, MixerPlugin, param

class Dies(TokenMixer):
    """Ends its process for one of its settings."""
    class Config(MixerConfig):
        dies: bool = param(False, meaning="end the process")
    facts = Facts(padding_invariant=True, permutation_equivariant=True)

    def __init__(self, config, site):
        super().__init__()
        self.value = torch.nn.Linear(site.dim, site.dim)
        if config.dies:
            os.abort()

    def forward(self, x, *, keep=None, carry=None):
        return self.value(x)

PLUGIN = MixerPlugin(
    config=Dies.Config,
    build=Dies,
    summary="",
    facts=Dies.facts,
    variants={"dying": {"dies": True}, "after": {}},
)
'''
CHECKS = ("shapes", "cross")


ASKED = {"only": CHECKS, "exclude": {"cross": "not today"}}


def told(outcomes):
    return [(outcome.subject, outcome.check, outcome.status) for outcome in outcomes]


@pytest.mark.ci
def test_outcomes_come_in_order_and_a_process_that_dies_takes_only_its_own_way_with_it(tmp_path):
    path = tmp_path / "dies.py"
    path.write_text(MIXER)
    source = resolve("mixer", f"{path}:PLUGIN").source
    assert source is not None
    path.unlink()  # the text travels
    with CheckWorkers(2) as workers:
        found = list(workers.outcomes(check_mixer(source, **ASKED), source, ASKED))
        name = "subquad:identity"
        again = list(workers.outcomes(check_mixer(name, **ASKED), name, ASKED))
    wanted = {
        "default": ("passed", "excluded"),
        "dying": ("failed", "failed"),
        "after": ("passed", "excluded"),
    }
    assert told(found) == [
        (way, check, status)
        for way, several in wanted.items()
        for check, status in zip(CHECKS, several, strict=True)
    ]
    assert found[2].detail.startswith("the process that checked it died: ")
    assert found[1].detail == "by the user: not today"
    assert told(again) == [
        ("default, causal", "shapes", "passed"),
        ("default, causal", "cross", "excluded"),
    ]


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
            next(workers.outcomes(check_mixer("wavelet", **ASKED), "wavelet", ASKED))
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
    from subquad_check.subject import check_subjects

    class Here(TokenMixer):
        Config, facts = MixerConfig, Facts()

        def __init__(self, config, site):
            super().__init__()

        def forward(self, x, *, keep=None, carry=None):
            return x

    (here,) = check_subjects(Here)
    assert _sendable(here.resolved) is None
    assert _sendable(resolve("mixer", "agf")) == "subquad:agf"


@pytest.mark.ci
def test_a_check_that_is_killed_leaves_no_worker_behind(tmp_path):
    """Workers write their ids, and never come back from their first call."""
    (tmp_path / "slow.py").write_text(
        MIXER.replace("return self.value(x)", "open(f'{os.getpid()}.id', 'w'); time.sleep(99)")
        .replace("import os", "import os, time")
        .replace('"dying": {"dies": True}, "after": {}', '"after": {}')
    )
    command = [sys.executable, "-m", "subquad.cli.main", "check", "./slow.py:PLUGIN", "--jobs", "2"]
    started = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)

    def ids():
        return [int(path.stem) for path in tmp_path.glob("*.id")]

    until(lambda: len(ids()) == 2)
    started.kill()
    started.wait()
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in ids()))
