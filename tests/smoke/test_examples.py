"""The scripts in examples/ run, and print what they promise."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAID = {
    "call_mixer.py": ["softmax  (2, 100, 32)"],
    "compare.py": ["agf", "identity", "Test accuracy (%)"],
    "own_mixer.py": ["ok", "GatedMean ", "identity "],
    "tune.py": ["3 trials, best validation accuracy"],
}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="runs beside the sources only")


def test_every_example_is_run():
    assert sorted(SAID) == sorted(path.name for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SAID)
def test_it_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    output = capsys.readouterr().out
    assert [text for text in SAID[name] if text not in output] == []
