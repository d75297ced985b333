"""Summaries through the engine: the final evaluation writes them, on one process, on two and
with a sharded model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import cli
from result_file import read_result
from safetensors.numpy import load_file
from small_run import only_run, run_here, stop_ranks_at

from subquad.record.names import OPENINGS, PREDICTIONS
from subquad.trained.verify import verify

MODEL = (
    "task={name: summarization, params: {label_smoothing: 0.1, beam_width: 3}}",
    "backbone={name: encoder-decoder, params: {num_layers: 1, dim: 16, num_heads: "
    "2, dropout: 0.0}}",
    "mixer=softmax",
    "mixers=[{name: longformer, params: {window: 8}, role: self}]",
    "train.precision=fp64",
    "train.epochs=16",
    "train.batch_size=10",
    "train.lr=0.02",
)


def articles(folder: Path) -> Path:
    """Of numbers, which all have much the same summary."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, count in (("train", 50), ("val", 6), ("test", 7)):
        numbers = [rng.integers(0, 99, 6).astype(str) for _ in range(count)]
        lines = [
            {
                "article_text": [" ".join(number)],
                "abstract_text": [" ".join(["we saw", *number[: row % 4]])],
            }
            for row, number in enumerate(numbers)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_summaries_are_scored_alike_however_the_work_is_cut(ticket, small, tmp_path):
    params = f"{{path: {articles(tmp_path / 'data')}, max_source: 24, max_target: 16}}"
    settings = (*MODEL, f"dataset={{name: pubmed-summarization, params: {params}}}")
    whole, cut = (
        ticket(*settings),
        ticket(*settings, "train.micro_batch=3", "train.eval_batch_size=2"),
    )
    for run in (whole, cut):
        assert run_here(run) == "finished"
    result = read_result(whole.folder)
    first = (tmp_path / "data" / "test.jsonl").read_text().splitlines()[:3]
    summaries = ["\n".join(json.loads(line)["abstract_text"]) for line in first]
    assert [example["target"] for example in result["examples"]] == summaries
    assert all(example["answer"].startswith("we saw") for example in result["examples"])
    assert set(result["reference_scores"]["scores"]["rougeL"]) == {"lead-3", "constant text"}
    assert any("reference score constant text: 'we saw" in note for note in result["notes"])
    metrics = result["test"]["metrics"]
    assert 0.0 < metrics["distinct1"] <= metrics["distinct2"] <= 1.0
    assert metrics["repetition"] == 0.0
    assert 0.3 < metrics["rougeL_low"] < metrics["rougeL"] < metrics["rougeL_high"] < 1.0
    root, sharded = tmp_path / "two", ["resources.workers=2", "resources.strategy=fsdp2"]
    cli(["train", str(small), "--local", "--root", str(root), *settings, *sharded], tmp_path)
    folders = [whole.folder, cut.folder, only_run(root)]
    results = [read_result(folder)["test"]["metrics"] for folder in folders]
    kept = [load_file(folder / PREDICTIONS) for folder in folders]
    for metrics, arrays in zip(results[1:], kept[1:], strict=True):
        assert metrics == pytest.approx(results[0], abs=1e-9)
        shown = ("distinct1", "distinct2", "repetition", "length_ratio")
        for name in ("rouge1", "rouge2", "rougeL", "rougeL_low", "rougeL_high", *shown):
            assert metrics[name] == results[0][name]
        assert all(np.allclose(arrays[name], rows) for name, rows in kept[0].items())
    assert results[0]["rougeL"] == pytest.approx(kept[0]["rougeL"].mean(), abs=1e-12)
    (verified,) = verify(whole.folder)
    assert not verified.faults
    assert "rougeL_high" in verified.words


def test_a_final_evaluation_stops_between_batches_and_is_done_again(ticket, tmp_path):
    """Ten steps of training, two evaluations of two batches, then the second batch of texts: on
    two processes with a sharded model.
    """
    params = f"{{path: {articles(tmp_path / 'data')}, max_source: 24, max_target: 16}}"
    shorter = [setting.replace("epochs=16", "epochs=2") for setting in MODEL]
    settings = (*shorter, f"dataset={{name: pubmed-summarization, params: {params}}}")
    whole, stopped = (
        ticket(*settings),
        ticket(*settings, "train.eval_batch_size=2", "resources={workers: 2, strategy: fsdp2}"),
    )
    assert run_here(whole) == "finished"
    stop_ranks_at(16, stopped.as_values(), world_size=2)
    assert read_result(stopped.folder) is None
    assert (stopped.folder / OPENINGS).exists()
    assert run_here(stopped) == "finished"
    expected = read_result(whole.folder)["test"]["metrics"]
    assert read_result(stopped.folder)["test"]["metrics"] == pytest.approx(expected, abs=1e-9)
