"""What the Python interface returns: lists and dictionaries that a notebook shows."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch

import subquad
from subquad.errors import RunError, UserError
from subquad_check import certify


def test_results_are_a_list_that_shows_itself(small, tmp_path):
    words = ["train.epochs=1", "matrix.mixer=[identity, softmax]"]
    results = subquad.train(small, words, root=tmp_path)
    assert isinstance(results, list)
    assert results == [dict(result) for result in results]
    table = results.table()
    assert table["mixer"][:2].tolist() == ["identity", "softmax"]
    assert table["score_mean"].dtype.kind == "f"
    page = results._repr_html_()
    assert "<table" in page
    assert "softmax" in page
    assert "<html" not in page
    titles = [chart.title for chart in results.curves().charts]
    assert any("training loss" in title for title in titles)
    assert results.curves()._repr_html_().count('<img src="data:image/svg+xml;') == len(titles)

    (study,) = (tmp_path / "runs" / "small").iterdir()
    report = subquad.report(study)
    assert report.table().to_csv() == table.to_csv()
    assert "softmax" in repr(report)

    model = subquad.load(results[1]["folder"])
    assert isinstance(model, torch.nn.Module)
    assert model.table()["mixer"][0] == "softmax"
    assert "<table" in copy.deepcopy(model)._repr_html_()


def test_a_search_is_a_dictionary_that_shows_itself(small, tmp_path):
    words = ["train.epochs=1", "mixer=identity"]
    settings = {"space": "optimizer", "budget": "2-trials", "final_seeds": 1}
    found = subquad.tune(small, words, root=tmp_path, **settings)
    assert isinstance(found, dict)
    assert "identity" in found.table().to_string()
    assert "Final study" in found._repr_html_()
    assert len(found.curves())
    assert repr(subquad.report(found["folder"])) == repr(found.report())


def test_report_refuses_what_is_no_run(tmp_path):
    with pytest.raises(RunError, match=r"neither a run \(no experiment.yaml\) nor a study"):
        subquad.report(tmp_path)
    with pytest.raises(RunError, match=r"^report: give the folder of a run, a study or a search$"):
        subquad.report()


def test_a_certificate_shows_itself():
    certificate = certify("identity", only=["shapes"])
    assert certificate.holds
    assert certificate._repr_markdown_().startswith("# Certificate")
    with pytest.raises(UserError, match=r"ordr: unknown key; did you mean 'order'\?"):
        certify("agf", {"ordr": 3}, only=["shapes"])


def test_importing_and_reporting_import_no_torch(small, tmp_path):
    (result,) = subquad.train(small, ["train.epochs=1"], root=tmp_path)
    code = (
        "import sys, subquad; before = set(sys.modules); "
        "assert not {'torch', 'numpy', 'pydantic', 'rich'} & before; "
        f"print(subquad.report({result['folder']!r})); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=60)
