"""Every shipped space: loads, checks, draws, and hardly ever draws a point that its mixer
refuses.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from built_in import abouts
from points import refusal

from subquad.registry import recipes
from subquad.registry.shipped import package_folder
from subquad.space import Space, auto_space, check_space, parse_space, run_at

FOLDER = package_folder("subquad_spaces")
assert FOLDER is not None
DEIT = ("backbone.params.num_layers=12", "mixers=[{name: softmax, layers: 0..10}]")
GIVEN = {name: (name,) for name in recipes("space") if name in abouts()} | {
    "agf-deit": ("agf", *DEIT),
    "agf-paper-grid": ("agf",),
    "optimizer": ("softmax",),
}
"""What each is for: a mixer, and settings besides."""
SEARCHED = [name for name, about in abouts().items() if about.searched]
POINTS = 100


def shipped(name: str, given) -> Space:
    return check_space(
        parse_space((Path(FOLDER or "") / f"{name}.yaml").read_text(encoding="utf-8"), name), given
    )


def test_every_file_is_tested():
    assert {path.stem for path in Path(FOLDER or "").glob("*.yaml")} == set(GIVEN)


@pytest.mark.parametrize("name", GIVEN)
def test_its_first_line_says_what_it_is(name):
    first = (Path(FOLDER or "") / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("# ")


@pytest.mark.parametrize("name", GIVEN)
def test_at_least_nine_in_ten_points_can_run(name, experiment):
    given = experiment(*GIVEN[name])
    space = shipped(name, given)
    refusals = [refusal(space, space.draw(0, number), given, 1024) for number in range(POINTS)]
    assert refusals.count(None) >= 0.9 * POINTS, set(refusals)


@pytest.mark.parametrize("mixer", SEARCHED)
def test_at_least_nine_in_ten_points_of_a_derived_space_can_run(mixer, experiment):
    given = experiment(mixer, "dataset=mqar") if mixer == "causal_fourier" else experiment(mixer)
    space = check_space(auto_space(given), given)
    # what shorter data refuse, a search leaves out before it draws
    refusals = [refusal(space, space.draw(0, number), given, 16_384) for number in range(50)]
    assert refusals.count(None) >= 45


def test_the_papers_grid_is_the_papers_grid(experiment):
    space = shipped("agf-paper-grid", experiment())
    points = list(space.grid())
    assert len(points) == space.size() == 4 * 3 * 9 * 4
    assert space.dimensions == 4
    assert {point["mixer.params.order"] for point in points} == {2, 3, 4, 5}


def test_the_grid_of_the_vision_transformer_replaces_one_three_and_six_layers(experiment):
    given = experiment(*GIVEN["agf-deit"])
    space = shipped("agf-deit", given)
    replaced = set()
    for point in space.grid():
        (entry,) = run_at(given, space.settings(point)).experiment.mixers
        replaced.add(12 - len(entry.numbers(12)))
    assert replaced == {1, 3, 6}


DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "spaces.md"


@pytest.mark.skipif(not DOCS.is_file(), reason="runs beside the sources only")
def test_the_documentation_says_how_large_they_are(experiment):
    """Its table has the number of grid points, its example is a space."""
    text = DOCS.read_text(encoding="utf-8")
    for name in GIVEN:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        assert row.endswith(f" {shipped(name, experiment(*GIVEN[name])).size() or 'continuous'} |")
    given = experiment()
    example = text.partition("```yaml\n")[2].partition("```")[0]
    assert check_space(parse_space(example, "example"), given).dimensions == 5


BEST = [
    (6, 1.5, -1.5, 0.1, True),
    (9, 2.0, 0.5, 0.1, True),
    (3, 1.0, 0.2, 0.01, False),
    (5, 1.5, 2.0, 0.1, True),
    (9, 1.5, 2.0, 0.1, True),
    (9, 1.5, 1.0, 0.1, True),
    (7, 2.0, 1.5, 0.1, True),
    (4, 1.0, 0.0, 0.5, True),
    (10, 2.0, 1.5, 0.1, True),
    (5, 2.0, -2.0, 0.01, True),
    (7, 2.0, -1.0, 0.01, True),
    (5, 2.0, -1.5, 1e-4, True),
    (4, 1.5, -1.0, 1e-4, True),
    (4, -0.5, 0.0, 0.0, True),
]
"""Order, a, b, gamma and fixed identity of published best settings with the Jacobi basis."""


@pytest.mark.parametrize("values", BEST)
def test_published_best_values_lie_in_the_space_of_agf(values, experiment):
    keys = ("order", "jacobi_a", "jacobi_b", "ortho_weight", "fix_identity")
    point = {f"mixer.params.{key}": value for key, value in zip(keys, values, strict=True)}
    space = shipped("agf", experiment())
    assert all(dim.can_be(point[dim.path]) for dim in space.dims if dim.path in point)
    assert space.keeps(point | {"mixer.params.basis": "jacobi"})


@pytest.mark.parametrize("name", ["agf", "mdfwa"])
def test_a_shipped_space_works_where_the_experiment_says_otherwise(name, experiment):
    """What it searches it sets, so that an experiment's own choice does not empty it."""
    own = {"agf": "mixer.params.basis=legendre", "mdfwa": "mixer.params.include_approx=true"}
    given = experiment(name, own[name])
    space = shipped(name, given)
    assert all(refusal(space, space.draw(1, number), given) is None for number in range(20))
