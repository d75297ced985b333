"""New shards, written by several processes. What is written depends on the pictures and the
settings alone.

So a second call finds whole shards of a first that was stopped, sees that they hold what they
should, and goes on.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from subquad.errors import DataError
from subquad_datasets.shards.index import LABEL, ShardIndex, index_path, read_index, write_index
from subquad_datasets.shards.source import Picture

CLASSES = "classes.txt"


class ShardPlan(NamedTuple):
    """A shard to be written.

    Attributes:
        path: of the shard.
        pictures: in its order.
        labels: of each.
    """

    path: Path
    pictures: list[Picture]
    labels: list[int]


def plan_shards(
    folder: Path,
    split: str,
    pictures: Sequence[Picture],
    classes: Sequence[str],
    size: int,
    seed: int,
) -> list[ShardPlan]:
    """Pictures in random order, cut into shards.

    Args:
        folder: of the shards.
        split: what their names begin with.
        pictures: in an order that does not change.
        classes: their names; a label is a position.
        size: samples of a shard; the last may have fewer.
        seed: of the order.

    Raises:
        DataError: there are no pictures.
    """
    if not pictures:
        raise DataError(f"{folder}: the source has no picture of these {len(classes)} classes")
    label = {name: number for number, name in enumerate(classes)}
    words = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(len(pictures))
    mixed = [pictures[place] for place in np.argsort(words, kind="stable")]
    plans = []
    for number, start in enumerate(range(0, len(mixed), size)):
        part = mixed[start : start + size]
        labels = [label[picture.kind] for picture in part]
        plans.append(ShardPlan(folder / f"{split}-{number:05d}.tar", part, labels))
    return plans


def write_shards(
    folder: Path, split: str, classes: Sequence[str], plans: Sequence[ShardPlan], jobs: int
) -> Iterator[int]:
    """Write shards with their indices, and the names of the classes; yields the samples of each
    that is there.

    Raises:
        DataError: other shards are in the folder, somebody writes there now, or a picture has
            changed.
        OSError: a picture cannot be read, or a shard not written.
    """
    import webdataset  # noqa: F401  (what is not installed shows before anything is written)

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / f".{split}.lock", timeout=0):
            _refuse_others(folder, split, classes, plans)
            (folder / CLASSES).write_text(
                "".join(f"{name}\n" for name in classes), encoding="utf-8"
            )
            yield from (len(index.rows) for index in in_processes(_write_shard, plans, jobs))
    except Timeout:
        raise DataError(f"{folder}: another process is writing shards of {split} there") from None


def in_processes(
    work: Callable[[Any], ShardIndex], tasks: Iterable[Any], jobs: int
) -> Iterator[ShardIndex]:
    """`map` over processes of their own, in order; one job works here."""
    if jobs == 1:
        yield from map(work, tasks)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
        try:
            yield from pool.map(work, tasks)
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A process of a pool does not notice that its parent was killed, and would wait for ever."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    Thread(target=wait, daemon=True).start()


def _refuse_others(
    folder: Path, split: str, classes: Sequence[str], plans: Sequence[ShardPlan]
) -> None:
    names = folder / CLASSES
    if names.exists() and names.read_text(encoding="utf-8").splitlines() != list(classes):
        raise DataError(f"{names}: has other classes than these {len(classes)}: use another folder")
    known = {plan.path for plan in plans}
    if extra := sorted(path for path in folder.glob(f"{split}-*.tar") if path not in known):
        raise DataError(f"{extra[0]}: a shard of another call: remove it, or use another folder")


def _ending(data: bytes) -> str:
    """Of a picture, by its first bytes."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    known = {b"\x89PNG": "png", b"GIF8": "gif"}
    return next((ending for start, ending in known.items() if data.startswith(start)), "jpg")


def _write_shard(plan: ShardPlan) -> ShardIndex:
    from webdataset.writer import TarWriter

    if not plan.path.exists():
        part = plan.path.with_name(f"{plan.path.name}.part")
        # of a call that was stopped, or a link, which is never written through
        part.unlink(missing_ok=True)
        # Times, owners and the order of members are fixed, so that equal pictures give equal bytes.
        with (
            part.open("xb") as stream,
            TarWriter(stream, encoder=False, mtime=0, format="PAX_FORMAT") as tar,
        ):
            for picture, label in zip(plan.pictures, plan.labels, strict=True):
                data = picture.read()
                named = {_ending(data): data, LABEL: str(label).encode()}
                tar.write({"__key__": picture.key, **named})
        part.replace(plan.path)
    if index_path(plan.path).exists():
        index = read_index(plan.path)
    else:
        index_name = index_path(plan.path).name
        for left in plan.path.parent.glob(f".{index_name}.*.tmp"):  # of a call that was killed
            left.unlink(missing_ok=True)
        index = write_index(plan.path)
    wanted = [
        (picture.key.encode(), picture.size, label)
        for picture, label in zip(plan.pictures, plan.labels, strict=True)
    ]
    if index.rows[["key", "size", "label"]].tolist() != wanted:
        raise DataError(
            f"{plan.path}: holds other samples than it should: remove it, or use another folder"
        )
    return index
