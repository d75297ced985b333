"""What a cluster says of a job, as the commands show it."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from subquad.ray.jobs import JobDetails


def exit_code(info: JobDetails) -> int:
    """The exit code of a job's command; of one that a signal ended as a shell has it."""
    if info.status.value == "SUCCEEDED":
        return 0
    if info.status.value == "STOPPED":
        return 128 + signal.SIGTERM
    code = info.driver_exit_code or 1
    if code < 0:
        return 128 - code
    return code


def job_row(info: JobDetails) -> dict[str, Any]:
    """A job's row of the table of jobs."""
    accepted = ""
    minutes = ""
    if info.start_time:
        begun = info.start_time / 1e3
        ended = info.end_time / 1e3 if info.end_time else time.time()
        minutes = f"{(ended - begun) / 60:.1f}"
        with suppress(ValueError, OverflowError, OSError):  # a cluster may say any number
            accepted = datetime.fromtimestamp(begun, UTC).isoformat(" ", "milliseconds")
    metadata = info.metadata or {}
    return {
        "job": info.submission_id,
        "status": info.status.value,
        "exit_code": exit_code(info) if info.status.is_terminal() else "",
        "accepted": accepted,
        "minutes": minutes,
        "command": metadata.get("command", ""),
    }
