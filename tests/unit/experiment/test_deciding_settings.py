"""Which settings decide numbers is declared at each field; digests, differences and rows follow,
for every field.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import BaseModel, ValidationError

from subquad.experiment import differences, digest
from subquad.experiment.schema import Experiment, decides_numbers, free_settings
from subquad.experiment.settings import KeyPath, dotted, get, key_path
from subquad.experiment.strict_yaml import to_yaml
from subquad.registry.parameters import models_below
from subquad.reports.reading import reported_runs
from subquad.reports.rows import make_rows
from subquad.space.fields import Fields

BASE: dict[str, Any] = {
    "dataset": {"name": "uea", "params": {"problem": "ERing"}},
    "task": {"name": "classification", "params": {"label_smoothing": 0.1}},
    "backbone": {"name": "encoder", "params": {"dim": 64}},
    "mixer": {"name": "agf", "params": {"order": 4}},
    "mixers": [{"name": "softmax", "params": {"dropout": 0.1}, "layers": [0], "role": "self"}],
    "init": {"from": "/weights.safetensors"},
    "train": {"schedule": "linear"},
    "resources": {"workers": 2},
}
BY_STEPS = BASE | {
    "train": {"steps": 10, "epochs": None, "eval_every_steps": 5, "eval_every_epochs": None}
}
OTHERS = [True, False, 0, 1, 2, 0.5, "x", [1], {"x": "y"}, None]
"""Values of which one at least is another one that a setting may have, where it has no names of
its own.
"""


def settings_of(
    model: type[BaseModel] = Experiment, above: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any]]:
    """Every setting of the schema with its type, those of an entry of `mixers` too."""
    for name, field in model.model_fields.items():
        here = (*above, name)
        if here == ("mixers",):
            yield from settings_of(get_args(field.annotation)[0], (*here, 0))
        elif inner := models_below(field):
            yield from settings_of(inner[0], here)
        else:
            yield here, field.annotation


SETTINGS = dict(settings_of())
ONE_VALUE = [("format",)]
"""There is no second value to compare with."""


def laid(data: dict[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(data)
    get(changed, path[:-1])[path[-1]] = value
    return changed


def two_that_differ_in(path: KeyPath) -> tuple[Experiment, Experiment] | None:
    """Two experiments that differ in one setting alone; None where the schema knows one value
    only.
    """
    for base in map(Experiment.model_validate, (BASE, BY_STEPS)):
        data = base.model_dump(mode="json")
        for value in (*get_args(SETTINGS[path]), *OTHERS):
            with suppress(ValidationError):
                other = Experiment.model_validate(laid(data, path, value))
                if other != base:
                    return base, other
    return None


def rows_of(folder: Path, pair: tuple[Experiment, Experiment]) -> int:
    """Rows of a table of the two as seeds of one experiment."""
    for number, experiment in enumerate(pair):
        seeded = laid(experiment.model_dump(mode="json"), ("train", "seed"), number)
        (folder / str(number)).mkdir()
        (folder / str(number) / "experiment.yaml").write_text(to_yaml(seeded))
    return len(make_rows(reported_runs([folder / "0", folder / "1"])))


def test_every_setting_is_met():
    assert [path for path in SETTINGS if two_that_differ_in(path) is None] == ONE_VALUE
    assert set(free_settings()) < set(map(dotted, SETTINGS))
    assert {"train.lr", "train.patience", "mixers[0].role", "init.from"} < set(
        map(dotted, SETTINGS)
    )


@pytest.mark.parametrize("path", [path for path in SETTINGS if path not in ONE_VALUE], ids=dotted)
def test_digest_differences_and_rows_follow_from_the_field(tmp_path, path):
    pair = two_that_differ_in(path)
    assert pair is not None
    decides = decides_numbers(dotted(path))
    assert (digest(pair[0]) != digest(pair[1])) == decides
    keys = differences(*pair)
    assert all(key.startswith(dotted(path)) for key in keys)
    assert bool(keys) == decides
    assert (rows_of(tmp_path, pair) > 1) == (decides and path != ("train", "seed"))


@pytest.mark.parametrize(
    "key",
    [
        "name",
        "tracking.uri",
        "resources.workers",
        "train.log_every",
        "train.keep_checkpoints",
        "train.loader_workers",
        "train.micro_batch",
        "train.checkpoint_every_steps",
        "train.activation_checkpointing",
        "train.max_bad",
    ],
)
def test_what_is_known_to_decide_nothing(key):
    assert not decides_numbers(key)


@pytest.mark.parametrize(
    "key",
    [
        "protocol",
        "train.seed",
        "train.precision",
        "train.kernels",
        "train.patience",
        "unknown",
    ],
)
def test_what_is_known_to_decide(key):
    assert decides_numbers(key)


PORTIONS = ["train.micro_batch", "train.eval_batch_size", "resources.workers"]


@pytest.mark.parametrize("key", PORTIONS)
@pytest.mark.parametrize("published", [True, False])
def test_portions_decide_where_samples_change_each_other(loaded, base_text, key, published):
    text = base_text.replace(
        "{name: agf, params: {order: 4}}",
        f"{{name: nystrom, params: {{num_landmarks: 5, as_published: {str(published).lower()}}}}}",
    )
    (one,) = loaded(text, f"{key}=1").runs
    (other,) = loaded(text, f"{key}=2").runs
    assert one.coupled is published
    assert (one.digest != other.digest) == published
    recorded = one.experiment.model_dump(mode="json")
    assert other.differences(recorded) == ([key] if published else [])
    assert (Fields(one).never_searched(key_path(key)) is None) == published


def test_a_number_of_workers_that_may_change_is_refused_there(loaded, refused, base_text):
    text = base_text.replace("{name: agf, params: {order: 4}}", "nystrom")
    assert loaded(text, "resources.workers=1..4").runs
    text = text.replace("mixer: nystrom", "mixer: {name: nystrom, params: {as_published: true}}")
    assert refused(text, "resources.workers=1..4") == (
        "override 'resources.workers=1..4': resources.workers: got '1..4', and mixer 'nystrom' "
        "with these parameters lets samples of a worker's batch change each other, so their "
        "number decides the results; use 4"
    )
