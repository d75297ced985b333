"""Whatever a file holds, it is a space that draws, or one line that says why not."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from subquad.errors import UserError
from subquad.experiment import Run, load_study
from subquad.space import Space, check_space, parse_space

PLAIN = st.sampled_from(
    [None, True, 0, 1, 3, -2, 0.5, 1e300, 2**62, "", "jacobi", "svd", "a b", "mixer.params.order"]
)
VALUES = st.lists(PLAIN, max_size=3) | PLAIN | st.just([2, 8]) | st.just([0.1, 2.5])
KEYS = st.sampled_from(
    [
        *(
            f"mixer.params.{name}"
            for name in ("order", "basis", "jacobi_a", "ortho_weight", "form", "x", "order.x")
        ),
        *(
            "train.lr",
            "train.epochs",
            "train.steps",
            "train.clip_norm",
            "train",
            "mixer",
            "mixer.name",
            "dataset.params",
        ),
        *("backbone.params.ffn_dim", "backbone.params.num_heads", "", ".", "a\nb", "\U0001f642"),
    ]
)
WHEN = st.dictionaries(KEYS, VALUES, max_size=2) | VALUES
KINDS = st.sampled_from(["choice", "uniform", "loguniform", "int", "in"])
OPTIONS = st.fixed_dictionaries({}, optional={"when": WHEN, "step": PLAIN, "log": PLAIN})
DIMENSION = (
    st.builds(lambda kind, value, more: {kind: value, **more}, KINDS, VALUES, OPTIONS) | VALUES
)
SUM = st.fixed_dictionaries({"keys": st.lists(KEYS, min_size=2, max_size=2), "values": VALUES})
RELATIONS = st.sampled_from(["less", "less_equal", "divides", "sum_not_in"])
CONSTRAINT = st.dictionaries(
    RELATIONS, st.lists(KEYS, min_size=2, max_size=2) | SUM | PLAIN, max_size=1
)
LIKELY = {
    "mixer.params.order": {"int": [2, 8]},
    "mixer.params.basis": {"choice": ["jacobi", "legendre", "chebyshev"]},
    "mixer.params.jacobi_a": {"choice": [0, 1.0, 2]},
    "mixer.params.ortho_weight": {"loguniform": [1e-5, 0.5]},
    "train.clip_norm": {"choice": [None, 1, 4]},
    "train.optimizer": {"choice": ["adamw", "sgd"]},
}
TOLD = ["jacobi", "legendre", "sgd", "adamw", 1, 2, None]


@st.composite
def likely(draw) -> dict[str, object]:
    """Good dimensions, with conditions and a constraint among them that may or may not hold
    together.
    """
    keys = draw(st.lists(st.sampled_from(list(LIKELY)), min_size=1, unique=True))
    dims = {key: dict(LIKELY[key]) for key in keys}
    for key, value in draw(
        st.lists(st.tuples(st.sampled_from(keys), st.sampled_from(TOLD)), max_size=2)
    ):
        dims[key]["when"] = {draw(st.sampled_from(keys)): [value, draw(st.sampled_from(TOLD))]}
    two = draw(
        st.lists(st.sampled_from([*keys, "train.batch_size"]), min_size=2, max_size=2, unique=True)
    )
    return {
        "dims": dims,
        "constraints": [{draw(st.sampled_from(["less_equal", "divides"])): two}][
            : draw(st.integers(0, 1))
        ],
    }


SPACE = likely() | st.fixed_dictionaries(
    {"dims": st.dictionaries(KEYS, DIMENSION, max_size=4)},
    optional={
        "mixer": PLAIN | st.just("agf"),
        "constraints": st.lists(CONSTRAINT, max_size=2) | PLAIN,
    },
)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory) -> Run:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "e.yaml").write_text(
        "dataset: recall\ntask: classification\nbackbone: encoder\nmixer: agf\n"
    )
    return load_study("e.yaml", cwd=folder).runs[0]


def made(text: str, experiment: Run, drop: bool) -> Space | str:
    """The space, or the message."""
    try:
        return check_space(parse_space(text, "fuzz"), experiment, drop=drop)
    except UserError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(data=SPACE, drop=st.booleans())
@example(data={"dims": {"train.lr": {"uniform": [1e-300, 1e300]}}}, drop=False)
@example(data={"dims": {"train.lr": {"uniform": [-1.7e308, 1.7e308]}}}, drop=False)
@example(data={"dims": {"mixer.params.order": {"int": [-(2**62), 2**62]}}}, drop=False)
def test_a_file_is_a_space_or_one_line(experiment, data, drop):
    space = made(json.dumps(data), experiment, drop)
    if isinstance(space, str):
        assert "\n" not in space
        assert space.startswith("space fuzz")
        return
    point = space.draw(0, 1)
    assert all(dim.can_be(point[dim.path]) for dim in space.dims if dim.path in point)
    space.settings(point)
    if 0 < (space.size() or 0) <= 500:
        points = list(space.grid())
        assert len(points) == space.size() == len({json.dumps(grid_point) for grid_point in points})
        assert space.constraints or set().union(*points) == {dim.path for dim in space.dims}, (
            "one is never searched"
        )
