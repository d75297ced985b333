"""Whether an experiment can run at a point of a search space."""

from __future__ import annotations

from typing import Any

from subquad.errors import UserError
from subquad.experiment import Run
from subquad.space import Space, run_at


def refusal(space: Space, point: dict[str, Any], given: Run, max_len: int = 0) -> str | None:
    """Why the experiment cannot run at a point, on sequences as long as this."""
    try:
        run_at(given, space.settings(point), max_len)
    except UserError as error:
        return str(error)
    return None
