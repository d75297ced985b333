"""The process beside the driver that sends to MLflow. Started by `Publisher`; ends when the driver does.

A process and not a thread: importing MLflow and talking to a database then never hold the interpreter that trains, no
connection is open when data loaders fork, no environment variable of the user's process changes, and it can be stopped.

Standard input: a `Plan` on the first line; then `close SECONDS`, or the end of the stream when the driver died.
Standard output: a `Summary`, once, at the end.
"""

from __future__ import annotations

import os
import sys
import threading

from subquad.tracking.contracts import Plan
from subquad.tracking.delivery import Delivery

_ORPHAN_SECONDS = 60.0


class Closing:
    """Whether the driver asked for the end, or is gone."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait that long, or until the end is asked for; whether it was."""
        return self._asked.wait(seconds)

    def _listen(self) -> None:
        words = sys.stdin.readline().split()
        seconds = float(words[1]) if words[:1] == ["close"] else _ORPHAN_SECONDS
        limit = threading.Timer(seconds, os._exit, (1,))
        limit.daemon = True
        limit.start()
        self._asked.set()


def main() -> None:
    plan = Plan.from_json(sys.stdin.readline())
    answer, sys.stdout = sys.stdout, sys.stderr  # what libraries print is not the answer
    os.nice(5)
    closing, delivery = Closing(), Delivery(plan)
    final = closing.wait(0)
    while True:
        error = delivery.look(final=final)
        if final:
            break
        final = closing.wait(plan.retry_s if error else plan.poll_s)
    print(delivery.summary(error).to_json(), file=answer, flush=True)
    os._exit(0)  # MLflow's threads have nothing left to do


if __name__ == "__main__":
    main()
