"""The child process of `subquad doctor`: loads and checks one plugin, and says what its import changed.

Run as `python -P -m subquad.registry.probe FOUND PIPE [preload]`, it writes JSON lines that `health` reads.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from subquad.errors import SubquadError
from subquad.registry.classes import bases
from subquad.registry.found import Found
from subquad.registry.guard import flush_output
from subquad.registry.load import load
from subquad.registry.loaded import Resolved, build_class, check
from subquad.registry.text import plain


def probe(found: Found, say: Callable[[Any], None], *, preload: bool) -> dict[str, Any]:
    """Load a plugin, check it, import and check its class.

    Args:
        found: the plugin.
        say: called with "base" before torch is imported, with "plugin" when the plugin's own time begins.
        preload: import torch first: its time is not the plugin's, and its random state can be compared.

    Returns:
        reason (None where all is well) and warnings; or again: the plugin imports torch itself, so preload it.
    """
    if preload:
        _import_base(found, say)
    try:
        return _probe(found, say)
    except SubquadError as error:
        return {"reason": str(error), "warnings": []}


def _probe(found: Found, say: Callable[[Any], None]) -> dict[str, Any]:
    had_torch, before = "torch" in sys.modules, _state()
    say("plugin")
    thing = load(found)
    if not had_torch and "torch" in sys.modules:
        return {"again": True}
    changes = _changes(before, _state())
    _import_base(found, say)
    before = _state()
    build_class(Resolved(check(found, thing), found))
    return {"reason": None, "warnings": list(dict.fromkeys(changes + _changes(before, _state())))}


def _import_base(found: Found, say: Callable[[Any], None]) -> None:
    say("base")
    bases(found.kind)
    say("plugin")


def _state() -> dict[str, Any]:
    """What an import must leave alone."""
    _, words, *rest = np.random.get_state()
    state = {
        "the working directory": os.getcwd(),
        "Python's random state": random.getstate(),
        "numpy's random state": (np.asarray(words).tobytes(), *rest),
        **{f"the environment variable {plain(name)}": value for name, value in os.environ.items()},
    }
    if torch := sys.modules.get("torch"):
        state["torch's random state"] = torch.get_rng_state().numpy().tobytes()
        state["torch's default dtype"] = torch.get_default_dtype()
    return state


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Things that differ; what only one of the two knows counts for the environment alone."""
    shared = [name for name in {**before, **after} if name.startswith("the env") or (name in before and name in after)]
    return [f"changes {name} when imported" for name in sorted(shared) if before.get(name) != after.get(name)]


def main(arguments: list[str]) -> None:
    """Probe the plugin that the arguments describe, and leave without running its exit handlers."""
    found, pipe = Found(**json.loads(arguments[0])), int(arguments[1])
    os.set_inheritable(pipe, False)

    def say(message: Any) -> None:
        os.write(pipe, json.dumps(message).encode() + b"\n")

    say(probe(found, say, preload="preload" in arguments[2:]))
    flush_output()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
