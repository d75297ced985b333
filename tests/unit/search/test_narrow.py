"""`auto` tries what fits: values that a candidate's data and model refuse are not in its space."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from small_run import SMALL

from subquad.execution.local import LocalExecutor
from subquad.experiment import load_study
from subquad.registry import resolve
from subquad.search.fitting import Prepared
from subquad.search.prepare import _part, prepare
from subquad.search.search import plan_search, read_search, write_search
from subquad.search.settings import Settings


def prepared(folder: Path, mixer: str, space: str = "auto") -> Prepared:
    path = folder / "small.yaml"
    path.write_text(SMALL)
    study = load_study(str(path), [f"mixer={mixer}"])
    return prepare(plan_search(study, Settings(space, budget="20-trials")), LocalExecutor())


@pytest.mark.parametrize(
    ("mixer", "key"),
    [
        ("local", "window"),
        ("{name: linformer, params: {rank: 4}}", "rank"),
        ("{name: cur, params: {num_indices: 4}}", "num_indices"),
        ("{name: dba, params: {rank: 4}}", "rank"),
    ],
)
def test_no_point_is_longer_than_the_data(tmp_path, mixer, key):
    found = prepared(tmp_path, mixer)
    (candidate,) = found.search.candidates
    points = list(islice(found.first_points(candidate), 20))
    assert points
    assert [point.reason for point in points if point.state == "infeasible"] == []
    name = candidate.run.mixer.found.name
    tried = resolve("mixer", name).plugin.config.model_fields[key].json_schema_extra["search"]
    (dim,) = [dim for dim in candidate.space.dims if dim.path == f"mixer.params.{key}"]
    whole = (
        tried["choices"] if "choices" in tried else range(int(tried["low"]), int(tried["high"]) + 1)
    )
    assert len(dim.options) < len(whole), (
        "the field's own values do not all fit, else this shows nothing"
    )


def test_what_fits_is_kept_whole_and_goes_on_so(tmp_path):
    found = prepared(tmp_path, "agf")
    (dim,) = [dim for dim in found.search.candidates[0].space.dims if dim.path.endswith("order")]
    assert list(dim.options) == list(range(2, 11))
    local = prepared(tmp_path, "local")
    folder = write_search(local.search, tmp_path)
    again = read_search(folder)
    assert [candidate.space.as_data() for candidate in again.candidates] == [
        candidate.space.as_data() for candidate in local.search.candidates
    ]


def test_spaces_of_files_are_left_as_they_are(tmp_path):
    (tmp_path / "mine.yaml").write_text("dims: {mixer.params.window: {choice: [2, 4, 100000]}}\n")
    found = prepared(tmp_path, "local", str(tmp_path / "mine.yaml"))
    (dim,) = found.search.candidates[0].space.dims
    assert list(dim.options) == [2, 4, 100000]


@pytest.mark.parametrize("least", range(12))
@pytest.mark.parametrize("largest", range(12))
def test_the_part_of_a_range_that_fits(least, largest):
    options = range(0, 12)
    fits = {value for value in options if least <= value <= largest}
    expected = sorted(fits) if fits & {0, 11} else []
    assert list(_part(options, fits.__contains__)) == expected
