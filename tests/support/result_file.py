"""result.json as it is written."""

from pathlib import Path
from typing import Any

from subquad.record.files import read_json
from subquad.record.names import RESULT


def read_result(run: Path) -> dict[str, Any] | None:
    """The values of a run's result.json, None while there is none."""
    return read_json(run / RESULT)


def ended(status: str, **more: Any) -> dict[str, Any]:
    """What the result.json of a run that ended so says at least."""
    names = {"mixer": "agf", "dataset": "JapaneseVowels", "protocol": "honest", "seed": 0}
    return {**names, "status": status, **more}
