"""The process that sends a folder: `python -P -m subquad.tracking FOLDER EXPERIMENT [idle]`, with
the store in MLFLOW_TRACKING_URI. It prints what came of it once standard input has ended.
"""

from __future__ import annotations

import os
import select
import sys
from contextlib import redirect_stdout
from pathlib import Path

_POLL_SECONDS = 1.0


def _main() -> None:
    folder, experiment, *idle = sys.argv[1:]
    if idle and hasattr(os, "SCHED_IDLE"):  # a nice value would count within this session alone
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    # until there is a record, the first steps have the machine for themselves
    while not any(Path(folder).rglob("metrics.jsonl")):
        if select.select([0], [], [], _POLL_SECONDS)[0]:
            break
    from subquad.tracking.address import VARIABLE
    from subquad.tracking.importing import follow
    from subquad.tracking.publisher import Upload

    with redirect_stdout(sys.stderr):  # what libraries print is no answer
        summary = follow(Upload(Path(folder), os.environ[VARIABLE], experiment))
    print(summary.model_dump_json())


if __name__ == "__main__":
    _main()
