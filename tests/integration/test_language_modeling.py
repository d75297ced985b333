"""A language model through the engine: however batches are cut, a token weighs the same; what
the result says.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from command import cli
from result_file import read_result
from safetensors.numpy import load_file
from small_run import only_run, run_here

from subquad.cli.main import main
from subquad.record.metrics import read_records
from subquad.record.names import PREDICTIONS
from subquad.trained.verify import verify

MODEL = (
    "task=language-modeling",
    "dataset={name: text-lm, params: {context: 16, stride: 5, train_size: 4, "
    "validation_size: 2, test_size: 2}}",
    "backbone={name: decoder, params: {num_layers: 1, dim: 16, num_heads: 2, dropout: 0.0}}",
    "mixer=softmax",
    "train.precision=fp64",
    "train.epochs=1",
    "train.batch_size=7",
)


def test_results_do_not_depend_on_how_batches_are_cut(ticket, small, tmp_path, capsys):
    whole, cut = ticket(*MODEL), ticket(*MODEL, "train.micro_batch=2", "train.eval_batch_size=3")
    for run in (whole, cut):
        assert run_here(run) == "finished"
    root = tmp_path / "two"
    cli(
        ["train", str(small), "--local", "--root", str(root), *MODEL, "resources.workers=2"],
        tmp_path,
    )
    folders = [whole.folder, cut.folder, only_run(root)]
    results = [read_result(folder) for folder in folders]
    curves = [
        [record.metrics["loss"] for record in read_records(run) if record.kind == "train"]
        for run in folders
    ]
    metrics = [result["test"]["metrics"] for result in results]
    for other in (1, 2):
        np.testing.assert_allclose(curves[0], curves[other], rtol=0, atol=1e-9)
        assert metrics[0] == pytest.approx(metrics[other], abs=1e-9)
    kept = load_file(whole.folder / PREDICTIONS)
    assert metrics[0]["loss"] == pytest.approx(kept["loss"].sum() / kept["tokens"].sum())
    assert metrics[0]["perplexity"] == pytest.approx(np.exp(metrics[0]["loss"]))
    assert metrics[0]["bits_per_byte"] == pytest.approx(
        kept["loss"].sum() / kept["bytes"].sum() / np.log(2)
    )
    assert results[0]["best"]["metrics"]["perplexity"] < 258
    assert results[0]["tokens_per_second"] == pytest.approx(
        7 * 16 / results[0]["seconds_per_step"], rel=0.5
    )
    (verified,) = verify(whole.folder)
    assert not verified.faults
    assert "recomputed from" in verified.words

    (tmp_path / "prompts.txt").write_text("once\nupon a time\n")

    def predicted(*settings: str) -> list[str]:
        assert main(["predict", str(whole.folder), str(tmp_path / "prompts.txt"), *settings]) == 0
        return [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]

    capsys.readouterr()
    assert [len(text.encode()) for text in predicted("task.params.max_new_tokens=5")] == [5, 5]
    hot = ("task.params.temperature=3.0", "task.params.max_new_tokens=40")
    assert predicted(*hot) == predicted(*hot) != predicted(*hot, "task.params.sampling_seed=1")
    assert main(["predict", str(whole.folder), str(tmp_path / "prompts.txt"), "train.lr=1"]) == 2
    message = (
        "train.lr=1: only the task of a trained model can have other settings: "
        "task.params.KEY=VALUE"
    )
    assert message in capsys.readouterr().err
