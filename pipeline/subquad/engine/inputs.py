"""What a run reads beside its experiment: data, weights to start from, and what plugins in files
import or are given as paths.

inputs.json has the SHA-256 of each, written before the first step. A later start, and each run of
the same study or search that asks for the same, must find the same content; where it lies is free.
Installed packages stand in environment.json instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from subquad.data import Dataset, Split, SplitName, digest_of
from subquad.engine.start import weights_of
from subquad.errors import RunError, UserError
from subquad.experiment import Run
from subquad.experiment.settings import dotted
from subquad.record.files import find_file, touching, write_file
from subquad.record.models import DATASET, Input, Inputs
from subquad.record.names import INPUTS, SEARCH, STUDY
from subquad.record.run_folder import RunFolder
from subquad.record.sums import by_name, manifest_of
from subquad.registry import imported_by

INIT = "init"
_TEST = "test"
_ABOVE = INPUTS.removesuffix(".json")
"""Folder of a study or search, of what its runs read."""
_DESCRIBED = (
    *("arrays", "lengths", "target", "vocab_size", "num_classes", "class_names", "values"),
    *("end_token", "token_bytes"),
)
"""Of a data set's description: what decides numbers, or what they mean."""


def inputs_of(
    run: Run, dataset: Dataset, start: Mapping[str, Any] | None = None, *, test: bool = True
) -> Mapping[str, Input]:
    """What a run reads, as it is now, by the part of its experiment that asks.

    Args:
        start: what became of the weights that it starts from; None: it starts from none, or goes
            on from a checkpoint.
        test: TEST belongs to it.
    """
    found: dict[str, Input] = {}
    for path, (plugin, _) in run.parts.items():
        part = dotted(path)
        settings = {key: run.places[key] for key in run.places if key.startswith(f"{part}.")}
        content: dict[str, str | None] = {}
        if part == DATASET:
            content |= _contents_of(dataset, run.experiment.protocol)
            if test:
                content[_TEST] = dataset.test_content()
        else:
            content |= {key: _content_at(Path(place)) for key, place in settings.items()}
        if plugin.source:
            content |= imported_by(plugin.source)
        if content:
            found[part] = Input(settings=settings, content=content)
    if start:
        found[INIT] = _of_weights(run, start["sha256"], start)
    return found


def _contents_of(dataset: Dataset, protocol: str) -> dict[str, str]:
    """Digests of the description, as names of classes and statistics of TRAIN are of the data
    too, and of the splits that a protocol trains on and selects by.
    """
    spec = dataset.describe()
    described = (f"{name} {getattr(spec, name)}\n" for name in _DESCRIBED)
    names: tuple[SplitName, ...]
    names = ("train", "validation") if protocol == "honest" else ("trainval",)
    contents = {name: dataset.split(name).content() for name in names}
    return {"description": digest_of(described), **contents}


def _of_weights(run: Run, sha256: str, start: Mapping[str, Any] | None = None) -> Input:
    return Input(
        settings={"init.from": run.places["init.from"]},
        content={"weights": sha256},
        start=dict(start) if start else None,
    )


def _content_at(path: Path) -> str:
    """SHA-256 (hex) of a file, or of all files below a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    with touching(path):
        return _digest(manifest_of(by_name(path, files)))


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def changes_of(before: Mapping[str, Input], now: Mapping[str, Input]) -> list[str]:
    """What differs, in words, of what both know: `dataset.params.path /data/w.csv: train, test`."""
    changed: list[str] = []
    for part in before.keys() & now.keys():
        found = now[part].content
        known = before[part].content.items()
        names = [name for name, digest in known if digest and (found.get(name) or digest) != digest]
        if names:
            places = now[part].settings.items()
            where = " and ".join(f"{key} {place}" for key, place in places) or part
            changed.append(f"{where}: {', '.join(names)}")
    return sorted(changed)


def first_inputs(run: Run, now: Mapping[str, Input]) -> Mapping[str, Input]:
    """Write down what a run reads, at its first start.

    Returns:
        what it was started with.

    Raises:
        RunError: other runs of its study or search were started with other content.
    """
    owner = _owner_of(run.folder)
    if owner != run.folder:
        experiment = run.experiment
        files = RunFolder(owner, experiment.resources.storage)
        for part, entry in now.items():
            asked = [part, experiment.protocol, entry.settings, sorted(entry.content)]
            if part == DATASET:
                asked.append(experiment.dataset.params)
            name = f"{_ABOVE}/{_digest(asked)[:16]}.json"
            path = owner / name
            if not path.exists():
                files.take([name])  # as a run on another machine wrote it
            kept = _kept(path, {part: entry})
            refuse_changed(kept, now, run.folder, owner.name)
        files.mirror()
    return _kept(run.folder / INPUTS, now)


def _owner_of(run: Path) -> Path:
    """The folder of the search or study that a run belongs to; of one that belongs to none its
    own.
    """
    owner = run
    for above in (*run.parents,)[:5]:
        if (above / SEARCH).exists():
            return above
        if (above / STUDY).exists():
            owner = above
    return owner


def _kept(path: Path, now: Mapping[str, Input]) -> Mapping[str, Input]:
    kept = find_file(Inputs, path.parent, path.name)
    if kept is None:
        write_file(path.parent, Inputs.read(now), path.name)
        return now
    return kept.parts


def refuse_changed(
    before: Mapping[str, Input], now: Mapping[str, Input], run: Path, since: str = "the run"
) -> None:
    """Refuse to go on with other content.

    Raises:
        RunError: what has changed.
    """
    changed = changes_of(before, now)
    if changed:
        raise RunError(
            f"{run}: what it reads has changed since {since} was started: {'; '.join(changed)}; "
            "put it back as it was, or start a new run"
        )


def kept_inputs(run: Path) -> Mapping[str, Input]:
    """What a run was started with; nothing where it never took a step."""
    return (find_file(Inputs, run) or Inputs.read({})).parts


def note_test(run: Path, split: Split) -> None:
    """Add the content of TEST, now that it is open, where nothing told it before."""
    kept = kept_inputs(run)
    if DATASET in kept and kept[DATASET].content.get(_TEST) is None:
        content = {**kept[DATASET].content, _TEST: split.content()}
        data = kept[DATASET].model_copy(update={"content": content})
        write_file(run, Inputs.read({**kept, DATASET: data}))


def changed_weights(run: Run, kept: Mapping[str, Input]) -> list[str]:
    """What has become, since a run was started, of the weights that it began with."""
    if INIT not in kept:
        return []
    try:
        _, sha256 = weights_of(run.places["init.from"])
    except UserError:  # which the run no longer needs
        return []
    return changes_of(kept, {INIT: _of_weights(run, sha256)})
