"""What strangers make: folders, experiments, data and clusters that do what they may not.

Each hostile thing is a function of a `World` that makes it below `world.given` and says which word
names it on a command line. `HOSTILE` has them by kind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from talking import Dashboard, Sink

ESCAPES = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31m\u202e"
"""Writes a clipboard, clears the screen, colours it, and turns the direction of text."""
FORMULA = '=HYPERLINK("http://x/","y")'
LONG = 10_000_000
OWN = "runs/own/20260101-000000-aaaaaaaa"
"""A run of the user."""
LONG_WORD = 100_000
"""Linux gives a program no word that is longer than 128 KiB."""
SECRETS = {
    "MLFLOW_TRACKING_TOKEN": "canary-mlflow",
    "RAY_AUTH_TOKEN": "canary-ray",
    "AWS_SECRET_ACCESS_KEY": "canary-aws",
}
"""Of the user's environment."""
CANARY = '''
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
EXPERIMENT = """
name: small
protocol: honest
dataset: {{name: table, params: {{path: {data}, split: part}}}}
task: classification
backbone: {{name: encoder, params: {{num_layers: 1, dim: 8, num_heads: 2, ffn_dim: 8}}}}
mixer: {mixer}
train: {{epochs: 1, batch_size: 16}}
tracking: {{uri: off}}
"""


class World:
    """A user's home and folder of work, what strangers gave, and where commands may write.

    Args:
        base: an empty folder; all of it is looked at.
    """

    def __init__(self, base: Path):
        self.base = base
        place = base / "a" / "b" / "c"
        self.home, self.work = place / "home", place / "work"
        self.given, self.out = place / "given", place / "out"
        self.mark, self.config = place / "mark", place / "config"
        self.store, self.storage = place / "store", base / "a" / "x"
        self.sink, self.dashboard = Sink(), Dashboard()
        for folder in (self.home, self.work, self.out, self.given, self.config, self.store):
            folder.mkdir(parents=True)
        own = {
            ".bashrc": "alias ls=ls\n",
            ".ssh/authorized_keys": "ssh-ed25519 AAAA\n",
            ".ssh/id": "PRIVATE KEY\n",
            ".git/config": "[core]\n",
        }
        for name, text in own.items():
            path = self.home / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        self.key = self.home / ".ssh" / "id"
        self.key.chmod(0o600)
        self.own = self.work / OWN
        (self.own / "checkpoints" / "step-00000001").mkdir(parents=True)
        for name in ("result.json", "attempts.jsonl", "checkpoints/step-00000001/manifest.json"):
            (self.own / name).write_text("{}\n")
        (self.work / "my_mixer.py").write_text("MINE = 1\n")

    @property
    def environment(self) -> dict[str, str]:
        """What this user's processes have."""
        places = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.config),
            "XDG_CACHE_HOME": str(self.out / "cache"),
            "SUBQUAD_DATA": str(self.out / "data"),
            "AWS_ENDPOINT_URL": self.sink.address,
            "AWS_ACCESS_KEY_ID": "user",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        return {**SECRETS, **places}

    def renew(self) -> None:
        """Nothing is given, written, trusted or noted."""
        for folder in (self.given, self.out, self.config):
            shutil.rmtree(folder)
            folder.mkdir()
        self.mark.unlink(missing_ok=True)
        shutil.rmtree(self.storage, ignore_errors=True)
        self.sink.asked.clear()
        self.dashboard.answers.clear()
        self.dashboard.asked.clear()
        prepared = self.out / "data" / f"x{ESCAPES}"
        prepared.mkdir(parents=True)
        manifest = {"about": ESCAPES, "files": {"../x": 1}}
        (prepared / "manifest.json").write_text(json.dumps(manifest))

    def state(self, *, given: bool) -> dict[str, tuple[int, bytes]]:
        """Mode and content of all that commands must leave alone.

        Args:
            given: also what strangers gave.
        """
        found = {}
        free = (self.out, self.config, self.mark, *([] if given else [self.given]))
        for folder, folders, names in os.walk(self.base):
            folders[:] = [name for name in folders if Path(folder, name) not in free]
            for name in (*folders, *names):
                path = Path(folder, name)
                if path not in free:
                    found[str(path)] = _state_of(path)
        return found

    def experiment(self, *changes: tuple[str, str], mixer: str = "identity") -> Path:
        """An experiment file of a stranger, with its data, some of its lines replaced."""
        data(self.given / "data.csv")
        text = EXPERIMENT.format(data="./data.csv", mixer=mixer)
        for key, line in changes:
            text = re.sub(rf"(?m)^{key}:.*\n", "", text) + line + "\n"
        path = self.given / "theirs.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    def canary(self) -> None:
        """A plugin file beside the experiment."""
        (self.given / "x.py").write_text(CANARY.format(mark=str(self.mark)))

    def folder(self, kind: str) -> Path:
        """A copy of what a stranger trained: `run`, `plain` or `search`."""
        place = self.given / "runs" / "small" / "20260202-000000-bbbbbbbb"
        shutil.copytree(self.store / kind, place)
        return place


def _state_of(path: Path) -> tuple[int, bytes]:
    about = path.lstat()
    if stat.S_ISREG(about.st_mode):
        return about.st_mode, path.read_bytes()
    return about.st_mode, os.readlink(path).encode() if path.is_symlink() else b""


def data(path: Path, *, label: str = "x", name: str = "b") -> Path:
    """A small data set in one file."""
    rows = [f"id,a,{name},label,part"]
    for number in range(48):
        part = ("train", "train", "validation", "test")[number % 4]
        kind = (label, "y")[number // 4 % 2]
        rows += [f"{number},{number}.{step},{number * step % 7},{kind},{part}" for step in range(4)]
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    return path


def trained(world: World, call: Callable[..., Any]) -> None:
    """Let a stranger train a run and a search with a plugin file, and a run without, elsewhere."""
    world.canary()
    call("trust", str(world.given))
    root = world.base / "theirs"
    more = ("--local", "--root", str(root))
    for name, mixer in {"plain": "identity", "run": "./x.py:Canary"}.items():
        experiment = world.experiment(mixer=mixer)
        outcome = call("train", str(experiment), *more)
        assert outcome.code == 0, outcome
        (run,) = (root / "runs" / "small").glob("2*")
        shutil.move(run, world.store / name)
    search = ("--space", "optimizer", "--budget", "1-trials", "final.seeds=1")
    outcome = call("tune", str(experiment), *search, *more)
    assert outcome.code == 0, outcome
    (found,) = (root / "runs" / "small-search").glob("2*")
    shutil.move(found, world.store / "search")
    shutil.rmtree(root)


Hostile = Callable[[World], str]


def _changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Edit a JSON file as somebody does who knows how its check is made."""
    from subquad.record.files import write_json

    found = json.loads(path.read_text(encoding="utf-8"))
    found.pop("check", None)
    change(found)
    write_json(path, found)


def _all_texts(value: Any, text: str) -> Any:
    """The same with a text put before each text and each name."""
    if isinstance(value, str):
        return text + value
    if isinstance(value, Mapping):
        return {key: _all_texts(inner, text) for key, inner in value.items()}
    return [_all_texts(inner, text) for inner in value] if isinstance(value, list) else value


# ---- experiments ----


def experiment_with(*changes: tuple[str, str]) -> Hostile:
    """An experiment of which some lines are others."""

    def make(world: World) -> str:
        world.canary()
        places = {"sink": world.sink.address, "key": world.key}
        filled = [(key, line.format(**places)) for key, line in changes]
        return str(world.experiment(*filled))

    return make


def experiment_of(content: Callable[[World], bytes]) -> Hostile:
    """A file in the place of an experiment."""

    def make(world: World) -> str:
        path = world.experiment()
        path.write_bytes(content(world))
        return str(path)

    return make


def experiment_link(world: World) -> str:
    path = world.experiment()
    path.unlink()
    path.symlink_to(world.key)
    return str(path)


def experiment_data(**more: str) -> Hostile:
    def make(world: World) -> str:
        path = world.experiment()
        data(world.given / "data.csv", **more)
        return str(path)

    return make


_QUOTED = json.dumps(ESCAPES + FORMULA)
_STEPS = [(now, ", ".join([f"*{chr(ord(now) - 1)}"] * 10)) for now in "bcdefghi"]
_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
_BOMB += "".join(f"{now}: &{now} [{aliases}]\n" for now, aliases in _STEPS)
EXPERIMENTS: dict[str, Hostile] = {
    "mixer in a file": experiment_with(("mixer", "mixer: './x.py:Canary'")),
    "mixer of a layer in a file": experiment_with(
        ("mixers", "mixers: [{{layers: [0], name: './x.py:Canary'}}]")
    ),
    "task in a file": experiment_with(("task", "task: {{name: './x.py:Canary'}}")),
    "data set in a file": experiment_with(("dataset", "dataset: {{name: './x.py:Canary'}}")),
    "backbone in a file": experiment_with(("backbone", "backbone: './x.py:Canary'")),
    "files on axes": experiment_with(
        ("mixer", "matrix: {{mixer: ['./x.py:Canary'], dataset: ['./x.py:Canary']}}"),
        ("dataset", ""),
    ),
    "labelled files on axes": experiment_with(
        ("mixer", "matrix: {{mixer: [{{name: './x.py:Canary', label: a}}]}}")
    ),
    "tracking address": experiment_with(("tracking", "tracking: {{uri: '{sink}'}}")),
    "tracking folder": experiment_with(("tracking", "tracking: {{uri: 'sqlite:///{key}'}}")),
    "storage": experiment_with(("resources", "resources: {{storage: 's3://theirs/x'}}")),
    "storage outside": experiment_with(("resources", "resources: {{storage: '../../../x'}}")),
    "data at an address": experiment_with(
        ("dataset", "dataset: {{name: table, params: {{path: '{sink}/x.csv', split: part}}}}")
    ),
    "data of the home": experiment_with(
        ("dataset", "dataset: {{name: table, params: {{path: '{key}', split: part}}}}")
    ),
    "weights at an address": experiment_with(("init", "init: {{from: '{sink}/x.safetensors'}}")),
    "weights of the home": experiment_with(("init", "init: {{from: '{key}'}}")),
    "extends the home": experiment_with(("extends", "extends: '{key}'")),
    "extends an address": experiment_with(("extends", "extends: '{sink}/x.yaml'")),
    "steering name": experiment_with(("name", f"name: {_QUOTED}")),
    "steering mixer": experiment_with(("mixer", f"mixer: {_QUOTED}")),
    "steering key": experiment_with(("odd", f"{_QUOTED}: 1")),
    "name that leads up": experiment_with(("name", "name: ../../../../x")),
    "whole path as name": experiment_with(("name", "name: '{key}'")),
    "label that leads up": experiment_with(
        ("mixer", "matrix: {{mixer: [{{name: identity, label: ../../../../x}}, mega]}}")
    ),
    "NUL": experiment_with(("mixer", 'mixer: "a\\0b"')),
    "NUL in a path": experiment_with(
        ("dataset", 'dataset: {{name: table, params: {{path: "a\\0b", split: part}}}}')
    ),
    "long name": experiment_with(("mixer", f"mixer: {'x' * LONG}")),
    "long key": experiment_with(("odd", f"{'x' * LONG}: 1")),
    "long label": experiment_with(("name", f"name: {'x' * LONG}")),
    "deep": experiment_of(lambda world: b"a: " + b"{a: " * 5000),
    "aliases": experiment_of(lambda world: _BOMB.encode()),
    "numbers": experiment_with(("train", "train: {{epochs: 1e12, batch_size: 16}}")),
    "no text": experiment_of(lambda world: bytes(range(256)) * 100),
    "zeros": experiment_of(lambda world: bytes(LONG)),
    "a link to a key": experiment_link,
    "steering data": experiment_data(label=ESCAPES + FORMULA),
    "steering column": experiment_data(name=ESCAPES),
    "long column": experiment_data(name="x" * LONG),
}


# ---- folders of runs and searches ----

LINKS = (
    "attempts.jsonl",
    "metrics.jsonl",
    "checkpoints",
    "result.json",
    "report.md",
    "mlflow.json",
    "diagnosis.json",
    "source",
    "lock",
)
"""Names of a run's folder, each in turn a link to what is the user's."""


def folder_with(change: Callable[[World, Path], None], kind: str = "run") -> Hostile:
    def make(world: World) -> str:
        place = world.folder(kind)
        change(world, place)
        return str(place)

    return make


def _link(name: str) -> Callable[[World, Path], None]:
    def change(world: World, place: Path) -> None:
        path = place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.symlink_to(world.own / name if name == "checkpoints" else world.home / ".bashrc")
        if name in ("attempts.jsonl", "checkpoints"):
            (place / "result.json").unlink()  # so that `resume` goes on

    return change


def _address(world: World, place: Path) -> None:
    from subquad.record.files import write_json

    ids = {"experiment": "x", "key": "k", "run_id": "r", "experiment_id": "1"}
    write_json(place / "mlflow.json", {"uri": world.sink.address, **ids})


def _result(change: Callable[[dict[str, Any]], None]) -> Callable[[World, Path], None]:
    def changed(world: World, place: Path) -> None:
        for path in place.rglob("result.json"):
            _changed(path, change)

    return changed


def _texts(found: dict[str, Any]) -> None:
    steering = ESCAPES + FORMULA
    for key in ("label", "name", "mixer", "dataset", "notes", "protocol_label"):
        found[key] = _all_texts(found.get(key) or "x", steering)
    found["reason"] = steering
    for metrics in (*([found["test"]["metrics"]] if found["test"] else []), found["metrics"]):
        metrics[steering] = metrics.pop("accuracy")
    found["axes"] = {steering: steering}


def _long(found: dict[str, Any]) -> None:
    found["label"] = found["mixer"] = "x" * LONG
    found["files"]["x" * LONG] = {"bytes": 1, "sha256": "0"}


def _up(found: dict[str, Any]) -> None:
    entry = found["files"].pop("plan.json", None)
    found["files"]["../../../../home/.bashrc"] = entry
    found["files"]["/etc/passwd"] = entry
    found["name"] = found["label"] = "../../../../x"


def _written(name: str, content: bytes) -> Callable[[World, Path], None]:
    def changed(world: World, place: Path) -> None:
        (place / name).write_bytes(content)

    return changed


def _everywhere(pattern: str, content: bytes) -> Callable[[World, Path], None]:
    def changed(world: World, place: Path) -> None:
        for path in place.rglob(pattern):
            path.write_bytes(content)

    return changed


def _naming(section: str, address: str, *keys: str) -> Callable[[World, Path], None]:
    """A run whose experiment names a place outside, and all of whose sums fit."""

    def changed(world: World, folder: Path) -> None:
        import yaml

        from subquad.experiment import load_study
        from subquad.experiment.components import resolve_unrun
        from subquad.record.sums import sum_at

        def named(experiment: dict[str, Any]) -> None:
            *above, last = keys
            place = experiment[section] = experiment[section] or {}
            for key in above:
                place = place[key]
            place[last] = address.format(sink=world.sink.address)

        data(world.given / "data.csv")
        path = folder / "experiment.yaml"
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
        named(written)
        path.write_text(yaml.safe_dump(written), encoding="utf-8")
        study = load_study(str(path), resolve=resolve_unrun, given=False)
        digest = study.runs[0].digest

        def identity(found: dict[str, Any]) -> None:
            found["digest"] = digest
            named(found["experiment"])

        def inputs(found: dict[str, Any]) -> None:
            found["init"] = {"settings": {}, "content": {"weights": digest}}

        def result(found: dict[str, Any]) -> None:
            found["experiment"] = digest
            for name in found["files"]:
                if (folder / name).exists():
                    found["files"][name] = sum_at(folder / name)

        _changed(folder / "identity.json", identity)
        if section == "init":
            _changed(folder / "inputs.json", inputs)
        _changed(folder / "result.json", result)

    return changed


FOLDERS: dict[str, Hostile] = {
    "storage": folder_with(_naming("resources", "s3://theirs/x", "storage"), "plain"),
    "data": folder_with(_naming("dataset", "{sink}/x.csv", "params", "path"), "plain"),
    "weights": folder_with(_naming("init", "{sink}/x.safetensors", "from"), "plain"),
    "plugin file": folder_with(lambda world, place: None),
    "plugin file, search": folder_with(lambda world, place: None, "search"),
    "address": folder_with(_address),
    "address, search": folder_with(_address, "search"),
    "texts": folder_with(_result(_texts)),
    "texts, search": folder_with(_result(_texts), "search"),
    "long": folder_with(_result(_long)),
    "up": folder_with(_result(_up)),
    "NUL": folder_with(_result(lambda found: found.update(name="a\0b", label="a\0b"))),
    "deep result": folder_with(_written("result.json", b"[" * 100_000)),
    "aliases": folder_with(_everywhere("experiment.yaml", _BOMB.encode())),
    "aliases, search": folder_with(_everywhere("search.yaml", _BOMB.encode()), "search"),
    "long record": folder_with(_written("metrics.jsonl", b'{"kind": "' + b"x" * LONG + b'"}\n')),
    "steering words": folder_with(_written("experiment.yaml", f"{_QUOTED}: 1\n".encode())),
    "no text": folder_with(_everywhere("*.json*", bytes(range(256)))),
    "no text, search": folder_with(_everywhere("*.json*", bytes(range(256))), "search"),
    "a key's folder": lambda world: str(world.key.parent),
    "steering place": lambda world: f"{world.given}/{ESCAPES}",
    "long place": lambda world: "x" * LONG_WORD,
    **{f"link {name}": folder_with(_link(name)) for name in LINKS},
}


# ---- data, and files beside them ----


def _file(name: str, content: Callable[[World], bytes]) -> Hostile:
    def make(world: World) -> str:
        path = world.given / name
        path.write_bytes(content(world))
        return str(path)

    return make


def _linked(name: str) -> Hostile:
    def make(world: World) -> str:
        path = world.given / name
        path.symlink_to(world.key)
        return str(path)

    return make


def _tar(world: World) -> bytes:
    import tarfile

    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        names = ("../../../../x.jpg", "/tmp/x.jpg", f"{ESCAPES}.jpg", "a.jpg", "a.cls", "a.json")
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, BytesIO(b"\x00\xff\xd8="))
        entry = tarfile.TarInfo("b.jpg")
        entry.type, entry.linkname = tarfile.SYMTYPE, str(world.key)
        archive.addfile(entry)
    return stream.getvalue()


def _pictures(world: World) -> str:
    """A folder of classes, with names that steer and links to the user's files."""
    top = world.given / "pictures"
    for kind in ("a", f"{ESCAPES}{FORMULA}"):
        (top / kind).mkdir(parents=True)
        (top / kind / "one.jpg").write_bytes(b"\xff\xd8\xff")
        (top / kind / "link.jpg").symlink_to(world.key)
    (top / "home").symlink_to(world.home)
    return str(top)


def _csv(**more: str) -> Hostile:
    return lambda world: str(data(world.given / "more.csv", **more))


TABLES: dict[str, Hostile] = {
    "steering label": _csv(label=ESCAPES + FORMULA),
    "steering column": _csv(name=ESCAPES + FORMULA),
    "long column": _csv(name="x" * LONG),
    "NUL": _file("x.csv", lambda world: b"id,a,b,label,part\n1,2,3,\0,train\n"),
    "zeros": _file("x.csv", lambda world: bytes(LONG)),
    "archive": _file("x.npz", lambda world: b"PK\x03\x04" + bytes(100)),
    "pickle": _file("x.npz", lambda world: _npz_with_pickle(world)),
    "key": _linked("key.csv"),
    "steering place": lambda world: f"{world.given}/{ESCAPES}.csv",
    "long place": lambda world: f"{'x' * LONG_WORD}.csv",
}
PICTURES: dict[str, Hostile] = {
    "folder": _pictures,
    "tar": _file("x.tar", _tar),
    "no tar": _file("x.tar", lambda world: bytes(range(256)) * 100),
    "key": _linked("key.tar"),
    "steering place": lambda world: f"{world.given}/{ESCAPES}.tar",
}


class _Runs:
    """Pickles as a call."""

    def __init__(self, mark: Path):
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self._mark,))


def _npz_with_pickle(world: World) -> bytes:
    import numpy as np

    stream = BytesIO()
    values = np.array([_Runs(world.mark)], dtype=object)
    np.savez(stream, x=values, y=values, allow_pickle=True)
    return stream.getvalue()


def _pickled(world: World) -> bytes:
    import pickle

    return pickle.dumps(_Runs(world.mark))


WEIGHTS: dict[str, Hostile] = {
    "pickle": _file("x.pth", _pickled),
    "pickle without name": _file("x.safetensors", _pickled),
    "address": lambda world: f"{world.sink.address}/x.safetensors",
    "key": _linked("x.safetensors"),
    "long header": _file("x.safetensors", lambda world: b"\xff" * 7 + b"\x7f{}"),
    "timm's folder": lambda world: f"timm:local-dir:{world.given}",
}


# ---- small files, and words ----


def _yaml(text: str) -> Hostile:
    def make(world: World) -> str:
        world.canary()
        path = world.given / "x.yaml"
        path.write_text(text.replace("GIVEN", str(world.given)), encoding="utf-8")
        return str(path)

    return make


_FILES: dict[str, Hostile] = {
    "deep": _yaml("a: " + "[" * 5000),
    "aliases": _yaml(_BOMB),
    "steering": _yaml(f"{_QUOTED}: {_QUOTED}\n"),
    "long": _yaml("x" * LONG),
    "zeros": _file("x.yaml", lambda world: bytes(LONG)),
    "key": _linked("x.yaml"),
}
SPACES = {
    **_FILES,
    "plugin file": _yaml("mixer: GIVEN/x.py:Canary\ndims: {mixer.params.order: {int: [1, 3]}}\n"),
    "choice of a file": _yaml("dims: {mixer: {choice: ['GIVEN/x.py:Canary', identity]}}\n"),
    "choice of data": _yaml("dims: {dataset.params.path: {choice: [/etc/passwd, a]}}\n"),
}
POINTS = {
    **_FILES,
    "plugin file": _yaml("[{mixer: 'GIVEN/x.py:Canary'}]\n"),
    "name": _yaml("[{mixer.name: 'GIVEN/x.py:Canary'}]\n"),
}
PROTOCOLS = {
    **_FILES,
    "plugin file": _yaml("mixers: ['GIVEN/x.py:Canary']\n"),
    "plugin file with parameters": _yaml("mixers: ['GIVEN/x.py:Canary:order=3']\n"),
}
RECORDS = {
    **_FILES,
    "plugin file": _yaml('{"settings": {}, "mixers": [{"mixer": "GIVEN/x.py:Canary"}]}\n'),
}
NAMES: dict[str, Hostile] = {
    "steering": lambda world: ESCAPES + FORMULA,
    "up": lambda world: "../../../../x",
    "long": lambda world: "x" * LONG_WORD,
    "surrogate": lambda world: "\udc80",
}
SETTINGS: dict[str, Hostile] = {
    "steering": lambda world: f"{ESCAPES}={ESCAPES}",
    "long": lambda world: f"train.{'x' * LONG_WORD}=1",
    "long value": lambda world: f"mixer={'x' * LONG_WORD}",
    "deep": lambda world: "train=" + "{a: " * 5000,
}
WHEELS: dict[str, Hostile] = {
    **NAMES,
    "names that lead up": lambda world: _wheel(world, "../../../../x.py"),
    "whole name": lambda world: _wheel(world, f"{world.home}/.bashrc"),
    "no zip": _file("x-1.0-py3-none-any.whl", lambda world: b"PK" + bytes(50)),
    "link": _linked("x-1.0-py3-none-any.whl"),
}


def _wheel(world: World, name: str) -> str:
    path = world.given / "x-1.0-py3-none-any.whl"
    files = {
        "x-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: x\nVersion: 1.0\n",
        "x-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "x-1.0.dist-info/RECORD": "",
        name: "HOSTILE = 1\n",
    }
    with zipfile.ZipFile(path, "w") as packed:
        for inner, text in files.items():
            packed.writestr(zipfile.ZipInfo(inner), text)
    return str(path)


# ---- clusters ----

_TOP = "runs/small/20260101-101500-ab12cd34"


def _zip(*names: str, content: bytes = b"x", mode: int = 0o100644) -> bytes:
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return stream.getvalue()


def cluster_with(**answers: Any) -> Hostile:
    """The address of a dashboard that says what it likes."""

    def make(world: World) -> str:
        filled = {
            key: answer(world) if callable(answer) else answer for key, answer in answers.items()
        }
        world.dashboard.answers.update(filled)
        return world.dashboard.address

    return make


_STEERING = {
    "submission_id": ESCAPES,
    "message": ESCAPES + FORMULA + "\ngo on with: subquad resume runs/a/b; rm -rf ~",
    "entrypoint": ESCAPES,
    "metadata": {"subquad": ESCAPES, "command": ESCAPES + FORMULA},
    "driver_node_id": f"{ESCAPES}&filename=/etc/passwd",
}
_FAILED = {"status": "FAILED", "driver_exit_code": None}
CLUSTERS: dict[str, Hostile] = {
    "archive that leads up": cluster_with(file=_zip(f"{_TOP}/../../../../../../home/.bashrc")),
    "archive with whole names": cluster_with(file=lambda world: _zip(f"{world.home}/.bashrc")),
    "archive beside runs": cluster_with(file=_zip(".git/config", "my_mixer.py")),
    "archive with a link": cluster_with(file=_zip(f"{_TOP}/x", content=b"/etc", mode=0o120777)),
    "archive of the user's run": cluster_with(file=_zip(f"{OWN}/result.json")),
    "steering archive": cluster_with(file=_zip(f"{_TOP}/{ESCAPES}")),
    "no archive": cluster_with(file=b"PK\x03\x04" + bytes(1000)),
    "steering": cluster_with(
        info=_STEERING,
        logs=f"{ESCAPES}\nsubquad: {ESCAPES} go on with: subquad resume ../../x;{ESCAPES}\n",
    ),
    "steering failure": cluster_with(info={**_STEERING, **_FAILED}),
    "long": cluster_with(info={"message": "x" * LONG, **_FAILED}),
    "long log": cluster_with(logs="x" * LONG),
    "redirect": cluster_with(redirect=lambda world: f"{world.sink.address}/"),
    "no JSON": cluster_with(info=b"<html>"),
    "deep": cluster_with(info=b"[" * 100_000),
    "other types": cluster_with(info=b'{"type": [], "status": 7, "entrypoint": null}'),
    "number": cluster_with(info=b"7"),
    "times": cluster_with(info={"start_time": 10**18, "end_time": -(10**18)}),
    "exit code": cluster_with(info={"driver_exit_code": 10**6}),
}
PLACES: dict[str, Hostile] = {
    "steering": lambda world: f"{world.out}/{ESCAPES}{FORMULA}",
    "long": lambda world: f"{world.out}/{'x' * LONG_WORD}",
}
HOSTILE: dict[str, Mapping[str, Hostile]] = {
    "experiment": EXPERIMENTS,
    "folder": FOLDERS,
    "table": TABLES,
    "pictures": PICTURES,
    "weights": WEIGHTS,
    "space": SPACES,
    "points": POINTS,
    "protocol": PROTOCOLS,
    "records": RECORDS,
    "name": NAMES,
    "setting": SETTINGS,
    "wheel": WHEELS,
    "cluster": CLUSTERS,
    "place": PLACES,
}
"""Hostile things by kind, each by its name."""
