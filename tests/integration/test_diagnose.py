"""`subquad diagnose` on a run and on an experiment: files, table, and what is not touched."""

import json

from command import cli
from small_run import only_run
from subquad.record.names import OPENINGS


def test_a_run_is_measured_before_and_after_and_an_experiment_untrained(small, tmp_path):
    cli(["train", str(small), "--local", "train.epochs=2"], tmp_path)
    run = only_run(tmp_path)
    opened = (run / OPENINGS).read_bytes()
    done = cli(["diagnose", str(run), "--samples", "2"], tmp_path)
    assert "blocks.0.mixer" in done.stdout
    found = json.loads((run / "diagnosis.json").read_text())
    assert [len(found[name]["operators"]) for name in ("small, untrained", "small")] == [1, 1]
    assert found["small"]["similarity"] != found["small, untrained"]["similarity"]
    assert sorted(path.name for path in (run / "diagnosis").iterdir()) == [
        "response.png",
        "similarity.png",
        "singular_values.png",
    ]
    assert (run / OPENINGS).read_bytes() == opened
    cli(["verify", str(run)], tmp_path)
    done = cli(["diagnose", str(small), "--json", "--out", "there"], tmp_path)
    untrained = json.loads(done.stdout)["small"]
    # The same weights as at the run's start, but for rounding, on other samples than two.
    assert len(untrained["operators"][0]["response"]) == 33
    assert (tmp_path / "there" / "diagnosis" / "similarity.png").exists()
    assert "no such recipe" in cli(["diagnose", "nothing"], tmp_path, check=2).stderr
