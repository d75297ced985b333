"""Points: drawn, walked and laid over the experiment."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from points import refusal

from subquad.errors import ConfigError
from subquad.experiment import load_study
from subquad.space import Space, read_space, run_at
from subquad.space.space import MAX_COUNTED

P = "mixer.params"
TEXT = f"""\
dims:
  {P}.order: {{int: [2, 10], step: 2}}
  {P}.basis: {{choice: [jacobi, legendre]}}
  {P}.jacobi_a: {{uniform: [-0.5, 2], when: {{{P}.basis: jacobi}}}}
  {P}.ortho_weight: {{loguniform: [1e-5, 0.5]}}
  {P}.ortho_norm: {{choice: [l1, frobenius]}}
  backbone.params.ffn_dim: {{int: [1, 512], log: true}}
  train.optimizer: {{choice: [adamw, sgd]}}
  train.beta2: {{choice: [0.99, 0.95], when: {{train.optimizer: [adamw]}}}}
constraints:
  - less_equal: [{P}.order, backbone.params.ffn_dim]
"""


@pytest.fixture
def mixed(space) -> Space:
    return space(TEXT, f"{P}.jacobi_a=1.5")


WORDS = st.integers(0, 2**64 - 1)


@settings(max_examples=60)
@given(seed=WORDS, number=WORDS)
def test_a_point_is_a_function_of_seed_and_number(module_space, seed, number):
    point = module_space.draw(seed, number)
    assert point == module_space.draw(seed, number)
    assert list(point) == [dim.path for dim in module_space.dims if dim.path in point]
    assert all(dim.can_be(point[dim.path]) for dim in module_space.dims if dim.path in point)
    assert (f"{P}.jacobi_a" in point) == (point[f"{P}.basis"] == "jacobi")
    assert ("train.beta2" in point) == (point["train.optimizer"] == "adamw")
    assert point[f"{P}.order"] <= point["backbone.params.ffn_dim"]


@pytest.fixture(scope="module")
def module_space(tmp_path_factory) -> Space:
    from subquad.space import check_space, find_space

    folder = tmp_path_factory.mktemp("space")
    (folder / "s.yaml").write_text(TEXT)
    (folder / "e.yaml").write_text(
        "dataset: recall\ntask: classification\nbackbone: encoder\nmixer: agf\n"
    )
    experiment = load_study("e.yaml", cwd=folder).runs[0]
    return check_space(find_space("./s.yaml", experiment, cwd=folder), experiment)


def test_points_of_different_numbers_and_seeds_differ(mixed):
    points = [json.dumps(mixed.draw(seed, number)) for seed in (0, 1) for number in range(50)]
    assert len(set(points)) == 100


def test_all_values_of_a_choice_come_about_equally_often(mixed):
    drawn = [mixed.draw(0, number)[f"{P}.basis"] for number in range(400)]
    assert 160 <= drawn.count("jacobi") <= 240


def test_a_dimension_keeps_its_values_when_others_leave(space, mixed):
    fewer = space("\n".join(line for line in TEXT.splitlines() if "ortho" not in line))
    for number in range(20):
        point, rest = mixed.draw(0, number), fewer.draw(0, number)
        assert {key: point[key] for key in rest} == rest


def test_points_load_as_overrides_do(mixed, experiment, tmp_path):
    """What a point sets is what the same settings on the command line set."""
    given = experiment("agf", f"{P}.jacobi_a=1.5")
    for number in range(10):
        point = mixed.draw(5, number)
        built = run_at(given, mixed.settings(point))
        overrides = [f"{key}={json.dumps(value)}" for key, value in point.items()]
        assert (
            built.experiment == load_study("base.yaml", overrides, cwd=tmp_path).runs[0].experiment
        )


def test_what_is_not_searched_at_a_point_goes_back_to_its_default(mixed, experiment):
    """The experiment's jacobi_a of 1.5 would have no effect with Legendre polynomials, and be
    refused.
    """
    number = next(n for n in range(50) if f"{P}.jacobi_a" not in mixed.draw(0, n))
    given = experiment("agf", f"{P}.jacobi_a=1.5")
    built = run_at(given, mixed.settings(mixed.draw(0, number)))
    assert built.experiment.mixer.params["jacobi_a"] == 1.0


GRID = f"""\
dims:
  {P}.jacobi_a: {{choice: [2.0, 1.0], when: {{{P}.basis: jacobi}}}}
  {P}.order: {{int: [2, 4]}}
  {P}.basis: {{choice: [legendre, jacobi]}}
"""


def test_a_grid_has_each_point_once_and_the_last_varies_first(space):
    walked = space(GRID)
    points = list(walked.grid())
    assert (
        len(points) == len({json.dumps(point) for point in points}) == walked.size() == 3 * (1 + 2)
    )
    legendre = [point for point in points if point[f"{P}.basis"] == "legendre"]
    assert [list(point) for point in legendre] == [[f"{P}.order", f"{P}.basis"]] * 3
    assert [(p[f"{P}.jacobi_a"], p[f"{P}.order"]) for p in points if p not in legendre] == [
        (2.0, 2), (2.0, 3), (2.0, 4), (1.0, 2), (1.0, 3), (1.0, 4)
    ]  # fmt: skip


LISTS = "dims: {mixers.0.layers: {choice: [[0], [0, 2, 4], '3..4', null]}}"


def test_a_choice_may_be_of_lists(space, experiment):
    overrides = ["backbone.params.num_layers=6", "mixers=[{name: softmax, layers: [1]}]"]
    searched = space(LISTS, *overrides)
    points = list(searched.grid())
    assert [point["mixers.0.layers"] for point in points] == [[0], [0, 2, 4], "3..4", None]
    assert all(searched.holds(json.loads(json.dumps(point))) for point in points)
    assert not searched.holds({"mixers.0.layers": [0, 2]})
    assert {json.dumps(searched.draw(0, number)) for number in range(60)} == {
        json.dumps(point) for point in points
    }
    base = experiment("agf", *overrides)
    again = read_space(searched.as_data(), searched.name, base)
    assert again == searched
    run = run_at(base, searched.settings(points[1]))
    assert run.experiment.mixers[0].layers == (0, 2, 4)


def test_a_grid_leaves_out_what_a_constraint_forbids(space):
    text = (
        "dims:\n  backbone.params.num_heads: {int: [1, 8]}\n  backbone.params.dim: "
        "{choice: [8, 12]}\n"
        "constraints: [{divides: [backbone.params.num_heads, backbone.params.dim]}]\n"
    )
    walked = space(text)
    points = [tuple(point.values()) for point in walked.grid()]
    assert points == [(1, 8), (1, 12), (2, 8), (2, 12), (3, 12), (4, 8), (4, 12), (6, 12), (8, 8)]
    assert walked.size() == 9


def test_a_sum_is_kept_from_a_pole(space):
    text = (
        f"dims:\n  {P}.jacobi_a: {{choice: [0, 1]}}\n  {P}.jacobi_b: {{choice: [-2, -1]}}\n"
        f"constraints: [{{sum_not_in: {{keys: [{P}.jacobi_a, {P}.jacobi_b], values: [-2, 0]}}}}]\n"
    )
    assert [tuple(point.values()) for point in space(text).grid()] == [(0, -1), (1, -2)]


def test_a_continuous_dimension_has_no_grid(mixed):
    assert mixed.size() is None
    with pytest.raises(
        ConfigError,
        match=r"^\./s\.yaml:4: mixer\.params\.jacobi_a: uniform has no grid \(and 1 "
        r"more\); use choice or "
        r"int, or another kind of search$",
    ):
        mixed.grid()


def test_huge_grids_are_counted_where_their_dimensions_are_free(space):
    free = f"dims:\n  train.batch_size: {{int: [1, {MAX_COUNTED}]}}\n  {P}.order: {{int: [0, 9]}}\n"
    assert space(free).size() == 10 * MAX_COUNTED
    assert space(f"{free}constraints: [{{less: [{P}.order, train.batch_size]}}]").size() is None


def test_a_point_that_a_plugin_refuses_is_told_and_no_crash(space, experiment):
    text = f"dims:\n  {P}.jacobi_b: {{choice: [-3.0, 1.0]}}\n".replace("-3.0", "-2.0")
    given = experiment("agf", f"{P}.jacobi_a=0.0")
    drawn = space(text, f"{P}.jacobi_a=0.0")
    bad, good = drawn.grid()
    assert refusal(drawn, good, given) is None
    assert "the Jacobi recurrence divides by zero" in (refusal(drawn, bad, given) or "")


def test_a_length_is_looked_at_where_it_is_known(space, experiment):
    given = experiment("cur")
    drawn = space(f"dims: {{{P}.num_indices: {{choice: [16, 64]}}}}", mixer="cur")
    assert [refusal(drawn, point, given, 17) is None for point in drawn.grid()] == [True, False]
    assert all(refusal(drawn, point, given) is None for point in drawn.grid())


def test_an_order_that_samplers_can_ask_in(space):
    ordered = space(GRID).ordered
    places = {dim.path: number for number, dim in enumerate(ordered)}
    assert all(
        places[condition.key] < places[dim.path] for dim in ordered for condition in dim.when
    )
    assert len({*places.values()}) == 3
    assert all(a < b for a, b in pairwise(sorted(places.values())))


RARE = "constraints: [{less_equal: [backbone.params.ffn_dim, backbone.params.num_layers]}]\n"


@pytest.mark.ci
def test_a_rare_point_is_found(space):
    """One of 400 values keeps the constraint, which now and then none of 1,000 draws does."""
    rare = space(
        f"dims:\n  backbone.params.ffn_dim: {{int: [1, 400]}}\n  train.lr: "
        f"{{uniform: [0.1, 0.2]}}\n{RARE}"
    )
    points = [rare.draw(0, number) for number in range(30)]
    assert {point["backbone.params.ffn_dim"] for point in points} == {1}
    assert len({point["train.lr"] for point in points}) == 30


@pytest.mark.ci
def test_points_that_draws_hardly_meet_are_listed(space):
    dims = (
        "backbone.params.ffn_dim: {int: [1, 400000]}, backbone.params.num_heads: {choice: [1, 2]}"
    )
    rare = space(f"dims: {{{dims}}}\n{RARE}", "backbone.params.num_layers=3")
    points = [rare.draw(0, number) for number in range(12)]
    assert {point["backbone.params.ffn_dim"] for point in points} == {1, 2, 3}
    assert {point["backbone.params.num_heads"] for point in points} == {1, 2}
    assert rare.draw(0, 11) == points[11]


def test_a_constraint_redraws_what_it_binds_and_nothing_else(space):
    """So subjects with different constraints still agree in the settings that they share."""
    free = "train.lr: {uniform: [0.1, 0.2]}, train.optimizer: {choice: [adamw, sgd]}"
    dims = (
        f"dims: {{{P}.order: {{int: [2, 30]}}, backbone.params.ffn_dim: {{int: [1, "
        f"40]}}, {free}}}\n"
    )
    bound = space(f"{dims}constraints: [{{less: [{P}.order, backbone.params.ffn_dim]}}]\n")
    unbound, keys = space(dims), ("train.lr", "train.optimizer")
    pairs = [(bound.draw(0, number), unbound.draw(0, number)) for number in range(40)]
    assert all(pair[key] == other[key] for pair, other in pairs for key in keys)
    assert sum(pair != other for pair, other in pairs) > 10


def test_a_setting_that_decides_whether_a_constraint_applies_is_redrawn_too(space):
    """With basis jacobi nothing keeps it."""
    text = (
        f"dims:\n  {P}.basis: {{choice: [jacobi, legendre]}}\n"
        f"  {P}.jacobi_a: {{uniform: [1, 2], when: {{{P}.basis: jacobi}}}}\n"
        f"constraints: [{{less: [{P}.jacobi_a, {P}.jacobi_b]}}]\n"
    )
    checked = space(text, f"{P}.jacobi_b=0.5")
    assert {checked.draw(0, number)[f"{P}.basis"] for number in range(20)} == {"legendre"}
