"""The driver, as workers have it: an actor takes what they ask, and tells them to stop."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any

from subquad.errors import by_class
from subquad.execution.signals import Signum

_NAME = "driver"
_LISTEN_SECONDS = 0.5

Question = tuple[str, Any]
"""Who or what it is about, and what is told with it."""


class _Head:
    """An actor on the driver's machine.

    Ray starts its process again if that dies. A worker that had asked it then fails, and its run
    goes on from its newest checkpoint.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Question, SimpleQueue[Any]]] = {}
        self._has_question = Event()
        self._signum = 0

    def ask(self, question: Question) -> Any:
        """The driver's answer to a worker."""
        answered = SimpleQueue[Any]()
        self._waiting[uuid.uuid4().hex] = (question, answered)
        self._has_question.set()
        return answered.get()

    def signum(self) -> int:
        """The signal that stops the workers, 0 for none."""
        return self._signum

    def exchange(self, answers: Mapping[str, Any], signum: int) -> dict[str, Question]:
        """For the driver: take its answers, and wait a moment for questions.

        Returns:
            all without an answer, so that nothing is lost where a call has to be made again.
        """
        self._signum = signum
        for name, answer in answers.items():
            if name in self._waiting:
                self._waiting.pop(name)[1].put(answer)
        self._has_question.wait(_LISTEN_SECONDS)
        self._has_question.clear()
        return {name: question for name, (question, _) in list(self._waiting.items())}


def ask_driver(question: Question) -> Any:
    """In a worker: what the driver answers."""
    import ray

    return ray.get(_head().ask.options(concurrency_group="asking").remote(question))


def driver_signum() -> int:
    """In a worker: the signal that stops it, 0 for none."""
    import ray

    return ray.get(_head().signum.options(max_task_retries=-1).remote())


@cache
def _head() -> Any:
    """The actor. It outlives a worker, so the cluster is asked for it only once."""
    import ray

    return ray.get_actor(_NAME)


def _serve(
    actor: Any,
    answer: Callable[[Question], Any],
    signum: Signum,
    lost: Callable[[str], None],
    over: Event,
) -> None:
    """Answer until it is over, or no worker reaches this process any more."""
    import ray

    exchange = actor.exchange.options(concurrency_group="driver", max_task_retries=-1)
    answers = dict[str, Any]()
    while not over.is_set():
        try:
            questions: Any = ray.get(exchange.remote(answers, signum()))
        except Exception as error:  # of Ray: the machine or the whole cluster has ended
            if not over.is_set():
                lost(by_class(error))
            return
        answers = {name: answer(question) for name, question in questions.items()}


@contextmanager
def driver_here(
    answer: Callable[[Question], Any], signum: Signum, lost: Callable[[str], None]
) -> Iterator[None]:
    """Answer workers of the cluster that this process is connected to, for the block.

    Args:
        answer: called in a thread of its own, with one question at a time.
        signum: called there at least each second: the signal that stops the workers.
        lost: called, with the reason, where no worker reaches this process any more.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    make: Any = ray.remote
    actor = (
        make(concurrency_groups={"asking": 9, "driver": 1})(_Head)
        .options(
            name=_NAME,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            ),
            max_concurrency=9,
            max_restarts=-1,
        )
        .remote()
    )
    over = Event()
    thread = Thread(target=_serve, args=(actor, answer, signum, lost, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=2 * _LISTEN_SECONDS)  # Ray tells on the screen of a call that is killed
        ray.kill(actor)
        with suppress(ValueError):  # until its name is free for the next one
            while ray.get_actor(_NAME):
                time.sleep(0.05)
