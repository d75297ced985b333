"""A space derived from what the fields of an experiment's mixer and backbone say about their search."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic_core import to_jsonable_python

from subquad.experiment.checked import Checked
from subquad.experiment.settings import Origin
from subquad.plugin import Config
from subquad.registry import ParameterRow, describe_config
from subquad.space.conditions import ever_active
from subquad.space.declared import Declared
from subquad.space.dimension import Condition, Dimension
from subquad.space.fields import Fields

NAME = "auto"


def auto(experiment: Checked) -> Declared:
    """The space that follows from the fields; without dimensions where no field says anything.

    A field whose `when` cannot hold in this experiment is left out.
    """
    parts = (("mixer", experiment.mixer_config), ("backbone", experiment.backbone_config))
    dims = [dim for kind, config in parts for dim in _dimensions(kind, config, experiment)]
    fields = Fields(experiment)
    rest = {one.key: fields.value(tuple(one.key.split("."))) for dim in dims for one in dim.when}
    while idle := next((dim for dim in dims if not ever_active(dim, dims, _defaults(rest, dims, fields))), None):
        dims.remove(idle)
    return Declared(NAME, tuple(dims))


def _defaults(rest: dict[str, Any], dims: list[Dimension], fields: Fields) -> dict[str, Any]:
    return rest | {dim.path: fields.default(dim.key_path) for dim in dims if dim.when}


def _dimensions(kind: str, config: Config, experiment: Checked) -> Iterator[Dimension]:
    resolved = getattr(experiment, kind)
    origin = Origin(f"space {NAME} ({kind} {resolved.found.name})")
    for row in describe_config(type(config)):
        if row.search is not None:
            yield _dimension(
                f"{kind}.params.", row, row.search, origin, resolved.found.name if kind == "mixer" else None
            )


def _dimension(prefix: str, row: ParameterRow, search: dict[str, Any], origin: Origin, mixer: str | None) -> Dimension:
    beside = prefix + row.name[: row.name.rfind(".") + 1]
    when = tuple(
        Condition(beside + name, tuple(to_jsonable_python(values))) for name, values in search.get("when", {}).items()
    )
    more: dict[str, Any] = {"when": when, "mixer": mixer, "origin": origin}
    if "choices" in search:
        return Dimension(prefix + row.name, "choice", values=tuple(to_jsonable_python(search["choices"])), **more)
    low, high, log = search["low"], search["high"], search["log"]
    if row.type.startswith("int"):
        return Dimension(prefix + row.name, "int", low=math.ceil(low), high=math.floor(high), log=log, **more)
    kind = "loguniform" if log else "uniform"
    return Dimension(prefix + row.name, kind, low=float(low), high=float(high), log=log, **more)
