"""Exact numbers of different expressions, whoever draws them."""

from __future__ import annotations

import io
import subprocess
import sys

import numpy as np
import pytest

from subquad.errors import DataError
from subquad_datasets.listops import generate
from subquad_datasets.listops.generate import blocks, different, pick
from subquad_datasets.listops.trees import Block, Shape, draw_block
from subquad_datasets.listops.worker import read_block, write_block

SHAPE = Shape(seed=0, min_length=30, max_length=90, max_depth=6, max_args=6)
TINY = Shape(seed=0, min_length=0, max_length=2, max_depth=3, max_args=2)
"""Digits only: ten different expressions."""


def together(parts: list[Block]) -> tuple[bytes, list[int], list[int]]:
    tokens, lengths, labels = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("tokens", "lengths", "labels")
    )
    return tokens.tobytes(), lengths.tolist(), labels.tolist()


@pytest.mark.ci
@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_draws_the_same(processes):
    alone = together([*different(SHAPE, 0, 700, 1, set())])
    assert alone == together([*different(SHAPE, 0, 700, processes, set())])
    assert len(alone[1]) == 700


def test_exactly_as_many_as_wanted_and_more_only_append():
    few, many = (together([*different(SHAPE, 1, wanted, 1, set())]) for wanted in (1, 500))
    assert (len(few[1]), len(many[1])) == (1, 500)
    assert many[0].startswith(few[0])


def test_all_are_different_also_from_those_seen_before():
    known: set[bytes] = set()
    first = together([*different(TINY, 0, 6, 1, known)])
    second = together([*different(TINY, 1, 4, 1, known)])
    assert sorted(first[0] + second[0]) == list(range(1, 11))
    assert first[2] == [token - 1 for token in first[0]]


@pytest.mark.ci
@pytest.mark.parametrize("processes", [1, 2])
def test_what_does_not_exist_is_not_waited_for(monkeypatch, processes):
    monkeypatch.setattr(generate, "BARREN", 5)
    with pytest.raises(
        DataError,
        match="lra-listops: 10 of 11 different expressions found, and none in the last 5,120",
    ):
        list(different(TINY, 0, 11, processes, set()))


def test_a_dead_process_is_an_error_not_a_shorter_data_set(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(
            DataError,
            match="lra-listops: a generating process died; try again, or with processes 1",
        ),
        blocks(SHAPE, 0, 2) as drawn,
    ):
        next(drawn)


@pytest.mark.ci
def test_no_process_is_left_behind(monkeypatch):
    started: list[subprocess.Popen[bytes]] = []
    start = generate._start
    monkeypatch.setattr(
        generate, "_start", lambda *given: started.append(start(*given)) or started[-1]
    )
    assert len([*different(SHAPE, 0, 100, 2, set())]) > 0
    assert len(started) == 2
    assert all(worker.returncode is not None for worker in started)


@pytest.mark.ci
def test_a_worker_ends_quietly_when_nobody_reads_any_more():
    worker = generate._start(SHAPE, 0, 0, 1)
    output = worker.stdout
    assert output is not None
    read_block(output)
    output.close()
    assert worker.wait() == 0


def test_blocks_travel_whole_or_not_at_all():
    block, stream = draw_block(SHAPE, 0, 0), io.BytesIO()
    write_block(stream, block)
    stream.seek(0)
    assert together([read_block(stream)]) == together([block])
    stream.seek(0)
    with pytest.raises(EOFError, match="ended early"):
        read_block(io.BytesIO(stream.getvalue()[:-1]))


def test_picking_rows():
    block = draw_block(SHAPE, 0, 0)
    some = pick(block, np.array([1, 4]))
    assert some.lengths.tolist() == block.lengths[[1, 4]].tolist()
    assert some.labels.tolist() == block.labels[[1, 4]].tolist()
    assert (
        some.tokens[: some.lengths[0]].tobytes()
        == block.tokens[block.lengths[0] :][: some.lengths[0]].tobytes()
    )
    assert len(pick(block, np.array([], dtype=np.int64)).tokens) == 0


def test_streams_share_nothing():
    first, second = (together([*different(SHAPE, stream, 200, 1, set())]) for stream in (0, 1))
    assert first[0] != second[0]
    assert first[1] != second[1]
