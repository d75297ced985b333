"""Guard: every recipe that is installed can be trained with all its rows.

The data are drawn: small, in the places and layouts that the recipes name (`drawn_data`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest
from drawn_data import draw_data, overrides_for
from papers_page import benchmark_of

from subquad.cli.main import main
from subquad.engine.parts import make_plan
from subquad.errors import UserError
from subquad.experiment import Run, Study, load_study
from subquad.preparation.costs import StudyCosts
from subquad.preparation.preflight import check_paths
from subquad.preparation.size import equal_size
from subquad.registry import recipe, recipes

ALL = "matrix.mixer=all"
ONE_SEED = {"train.seed": "matrix.seed=[0]"}
"""Seeds change no model."""

MISSPELT = {
    "a label": ("    - Hybrid-FNet\n", "    - Hybrid-FNets\n", "'Hybrid-FNets'"),
    "a row's mixer": ("name: subquad:longformer", "name: subquad:longformr", "longformr"),
    "a row's parameter": ("num_global: 1", "num_globals: 1", "num_globals"),
    "a row's value": ("window: 64,", "window: 640,", "window 640 is more than"),
}
"""Faults planted into pubmed-mdfwa-smoke and what it extends: words, other words, what is said."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with drawn data; prepared data go to a folder in it."""
    folder = tmp_path_factory.mktemp("recipes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBQUAD_DATA", str(folder / "prepared"))
        patch.chdir(folder)
        draw_data(folder)
        yield folder


def refusals(target: str, given: Mapping[str, str]) -> list[str]:
    """What a recipe is refused with, each once; nothing if it is not.

    Args:
        given: settings in place of what the recipe has, by the axis that they need.
    """
    try:
        runs = load_study(target).runs
        overrides = [given[axis] for axis in sorted(given.keys() & axes_of(runs))]
        study = load_study(target, [*overrides, *overrides_for(runs)])
        check_paths(study)
        costs = StudyCosts()
        study = equal_size(study, costs)
    except UserError as error:
        return [str(error)]
    return list(dict.fromkeys(_refusals(study, costs)))


def _refusals(study: Study, costs: StudyCosts) -> Iterator[str]:
    for run in study.runs:
        try:
            dataset, spec = costs.data(run)
            make_plan(run.experiment, dataset)
            costs.parameters(run)
            if spec.benchmark not in ("", benchmark_of(run)):
                yield f"{run.label}: {spec.benchmark}, the page says {benchmark_of(run)}"
        except UserError as error:
            yield f"{error} (run {run.label})"


def axes_of(runs: Sequence[Run]) -> set[str]:
    return {axis for run in runs for axis in run.axes}


@cache
def axes(name: str) -> set[str]:
    """The axes of a recipe."""
    return axes_of(load_study(name).runs)


def takes_others(name: str) -> bool:
    """Whether a recipe has an axis of mixers, and none over the parameters of one of them."""
    return "mixer" in axes(name) and not any(axis.startswith("mixer.") for axis in axes(name))


@pytest.mark.parametrize("name", [name for name in recipes() if not name.endswith("-swaps")])
def test_every_row_can_be_built(place: Path, name: str) -> None:
    """But of recipes of which nothing is trained; the next test builds those, minutes long."""
    assert refusals(name, ONE_SEED) == []


@pytest.mark.extended
@pytest.mark.parametrize("name", recipes())
def test_every_mixer_that_a_recipe_may_take_can_be_built(place: Path, name: str) -> None:
    others = {"mixer": ALL} if takes_others(name) else {}
    assert refusals(name, {**others, **ONE_SEED}) == []


@pytest.mark.extended
@pytest.mark.parametrize("name", recipes())
def test_every_row_passes_the_dry_run(
    place: Path,
    name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command itself: FLOPs are counted too, which runs a step of each model."""
    for overrides in ([], [ALL]) if takes_others(name) else ([],):
        given = [*overrides, *overrides_for(load_study(name).runs)]
        code = main(["train", name, "--dry-run", "--json", *given])
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        rows = json.loads(printed.out)["runs"]
        assert [row["label"] for row in rows] == [run.label for run in load_study(name, given).runs]
        assert [row["label"] for row in rows if not row["flops_per_step"]] == []


@pytest.mark.parametrize("name", recipes())
def test_no_setting_stands_beside_the_axis_that_replaces_it(name: str) -> None:
    """A `mixer:` that no run has, as `matrix.mixer` names others, misleads who reads the file."""
    lines = recipe(name).text().splitlines()
    keys = {line.partition(":")[0] for line in lines if line[:1].isalpha()}
    assert not keys & axes(name)


@pytest.mark.parametrize("fault", MISSPELT)
def test_a_misspelt_row_is_found(place: Path, fault: str) -> None:
    right, wrong, said = MISSPELT[fault]
    for name in ("pubmed-mdfwa", "pubmed-mdfwa-smoke"):
        text = recipe(name).text().replace("extends: ", "extends: ./")
        text = text.replace("./pubmed-mdfwa", "./pubmed-mdfwa.yaml")
        (place / f"{name}.yaml").write_text(text.replace(right, wrong))
    found = refusals("./pubmed-mdfwa-smoke.yaml", {})
    assert len(found) == 1
    assert said in found[0]
