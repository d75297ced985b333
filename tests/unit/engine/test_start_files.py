"""Files of `torch.save` that a model starts from: how they are wrapped, and what is refused
without being run.
"""

import argparse
import pickle
from pathlib import Path

import pytest
import torch
from small_run import SMALL
from torch import nn

from subquad.engine.start import start_from
from subquad.errors import ConfigError
from subquad.experiment import load_study
from subquad.nn import Backbone, ModelOutput


class Net(Backbone):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(2, 2)])

    def forward(self, batch):
        return ModelOutput(batch)


def started(path: Path) -> tuple[Net, dict]:
    (path.parent / "small.yaml").write_text(SMALL)
    run = load_study("small.yaml", [f"init.from={path}"], cwd=path.parent).runs[0]
    model = Net()
    found = start_from(model, run.experiment)
    assert found is not None
    return model, found


@pytest.mark.parametrize("suffix", [".pth", ".pt"])
@pytest.mark.parametrize(
    "wrap", [dict, lambda state: {"model": state, "epoch": 3}, lambda state: {"state_dict": state}]
)
def test_weights_are_found_bare_and_wrapped(wrap, suffix, tmp_path):
    state = {"blocks.0.weight": torch.full((2, 2), 3.0), "blocks.0.bias": torch.full((2,), 4.0)}
    torch.save(wrap(state), tmp_path / f"w{suffix}")
    model, found = started(tmp_path / f"w{suffix}")
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert (found["used"], found["missing"], found["unused"]) == (list(state), [], [])
    assert len(found["sha256"]) == 64


class Runs:
    def __reduce__(self):
        return (Path.touch, (Path("was-run"),))


@pytest.mark.parametrize("content", [{"model": {}, "args": argparse.Namespace()}, Runs()])
def test_other_objects_are_refused_and_not_run(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(
        ConfigError,
        match=r"w.pth: not a file of torch.save that holds weights alone; save the model's",
    ):
        started(tmp_path / "w.pth")
    (tmp_path / "w.pth").write_bytes(pickle.dumps(content))
    with pytest.raises(
        ConfigError, match=r"w.pth: not a file of torch.save that holds weights alone"
    ):
        started(tmp_path / "w.pth")
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 cut off"])
def test_damaged_files_are_refused(content, tmp_path):
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(ConfigError, match=r"init.from: .*w.pt: not a file of torch.save") as caught:
        started(tmp_path / "w.pt")
    assert "\n" not in str(caught.value)


def test_a_file_without_tensors_is_refused(tmp_path):
    torch.save({"model": {"epoch": 3}}, tmp_path / "w.pt")
    with pytest.raises(ConfigError, match=r"init.from: .*w.pt: holds no tensors by name"):
        started(tmp_path / "w.pt")
    (tmp_path / "w.bin").touch()
    with pytest.raises(
        ConfigError,
        match=r"w.bin: must be a run's folder, a .safetensors, .pth or .pt file, or timm:NAME",
    ):
        started(tmp_path / "w.bin")


@pytest.mark.parametrize(
    "name", ["local-dir:{0}", "hf-hub:a/b", "hf_hub:a/b", "file:{0}", "../{0}", "s3:a", "a b", ""]
)
def test_a_folder_or_a_repository_of_timm_is_not_unpickled(name, tmp_path, monkeypatch):
    """What timm reads there it may unpickle, at the lowest version that is asked for."""
    monkeypatch.chdir(tmp_path)
    torch.save(Runs(), tmp_path / "pytorch_model.bin")
    (tmp_path / "config.json").write_text(
        '{"architecture": "vit_tiny_patch16_224", "num_classes": 3}'
    )
    (tmp_path / "small.yaml").write_text(SMALL)
    run = load_study("small.yaml", [f"init.from='timm:{name.format(tmp_path)}'"]).runs[0]
    with pytest.raises(ConfigError, match="must be a model's name alone"):
        start_from(Net(), run.experiment)
    assert not (tmp_path / "was-run").exists()
