"""Which commands run a plugin file that an experiment or a run's folder names: what docs/security.md says is so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import call
from small_run import SMALL, only_run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
CANARY = '''
"""{nonce}"""
from pathlib import Path

import torch

from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig

Path({mark!r}).touch()


class Canary(TokenMixer):
    """Scales each token."""

    class Config(MixerConfig):
        pass

    facts = Facts(padding_invariant=True, complexity="L")

    def __init__(self, config, site):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.ones(site.dim))

    def forward(self, x, *, keep=None, carry=None):
        return x * self.gate
'''


class Stranger:
    """Files of somebody else, each time with a plugin file that this process has not met yet."""

    def __init__(self, place: Path):
        self.place, self.mark, self._count = place, place / "mark", 0
        self.experiment, self.plain = place / "experiment.yaml", place / "plain.yaml"
        self.plain.write_text(SMALL)
        mixer = "mixer: ./canary.py:Canary"
        self.experiment.write_text(re.sub(r"(?m)^mixer: .*$", mixer, SMALL))
        self._write(place / "canary.py")
        assert call("train", str(self.experiment), "train.epochs=1", "--local", "--root", str(place)).code == 0
        self.run = place / "given" / "runs" / "small" / "one"
        shutil.copytree(only_run(place), self.run)
        search = (str(self.experiment), "train.epochs=1", "--space", "optimizer", "--budget", "1-trials")
        assert call("tune", *search, "--final-seeds", "1", "--local", "--root", str(place)).code == 0
        self.search = only_run(place, "small-search")
        settings = self.run / "experiment.yaml"
        (source,) = (self.run / "source").iterdir()
        text = settings.read_text().replace(f"{place}/canary.py", f"./source/{source.name}")
        settings.write_text(text)
        self._files = (place / "canary.py", source)

    def _write(self, path: Path) -> None:
        self._count += 1
        path.write_text(CANARY.format(nonce=self._count, mark=str(self.mark)))

    def runs(self, *words: str) -> bool:
        """Whether a command runs the file."""
        for path in self._files:
            self._write(path)
        self.mark.unlink(missing_ok=True)
        call(*words)
        return self.mark.exists()


def told(given: str) -> tuple[set[str], set[str]]:
    """What the page says of what is given: commands that run the file, and those that do not."""
    row = next(line for line in PAGE.read_text().splitlines() if line.strip().startswith(f"| {given} |"))
    _, runs, runs_not = (cell.strip() for cell in row.strip().strip("|").split(" | "))
    commands = (set(re.findall(r"`([^`]+)`", cell)) for cell in (runs, runs_not))
    return next(commands), next(commands)


def of_an_experiment(it: Stranger, out: str) -> dict[str, tuple[str, ...]]:
    given = str(it.experiment)
    return {
        "train --dry-run": ("train", given, "--dry-run"),
        "tune --dry-run": ("tune", given, "--space", "optimizer", "--budget", "2-trials", "--dry-run"),
        "submit": ("submit", "train", given, "--address", "http://127.0.0.1:9"),
        "swap": ("swap", given, "identity", "--out", out),
        "diagnose": ("diagnose", given, "--out", out),
        "data show": ("data", "show", given, "--out", out),
        "data prepare": ("data", "prepare", given),
        "cluster render slurm": ("cluster", "render", "slurm", given),
        "cluster render kuberay": ("cluster", "render", "kuberay", given),
    }


def of_a_run(it: Stranger, out: str) -> dict[str, tuple[str, ...]]:
    given, file = str(it.run), str(it.plain)
    return {
        "verify": ("verify", given),
        "eval": ("eval", given, file),
        "predict": ("predict", given, file),
        "export": ("export", given, f"{out}-model"),
        "diagnose": ("diagnose", given, "--out", out),
        "swap": ("swap", given, "identity", "--out", out),
        "resume": ("resume", given, "--local"),
        "report": ("report", given, "--out", out),
        "sync": ("sync", given, "--uri", f"sqlite:///{out}.db"),
    }


def of_a_search(it: Stranger, out: str) -> dict[str, tuple[str, ...]]:
    given = str(it.search)
    return {
        "verify": ("verify", given),
        "report": ("report", given, "--out", out),
        "tune --resume": ("tune", "--resume", given, "--local"),
        "sync": ("sync", given, "--uri", f"sqlite:///{out}.db"),
    }


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    return Stranger(tmp_path_factory.mktemp("stranger"))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("given", "commands"),
    [
        ("an experiment file", of_an_experiment),
        ("the folder of a run", of_a_run),
        ("the folder of a search", of_a_search),
    ],
)
def test_the_page_says_which_commands_run_a_file(
    stranger: Stranger, tmp_path: Path, given: str, commands: Callable[[Stranger, str], dict[str, tuple[str, ...]]]
):
    tried = commands(stranger, str(tmp_path / "out"))
    found = {name for name, words in tried.items() if stranger.runs(*words)}
    runs, runs_not = told(given)
    assert found == runs & tried.keys()
    assert tried.keys() - found == runs_not & tried.keys()
