"""Load: import the one plugin that was asked for."""

from __future__ import annotations

import importlib
from typing import Any

from subquad.errors import PluginError
from subquad.registry.found import Found
from subquad.registry.guard import blamed
from subquad.registry.text import plain


def load(found: Found) -> Any:
    """What a plugin's entry point stands for, not checked yet.

    Raises:
        PluginError: it is not "module:attribute", or importing it fails in any way.
    """
    return load_target(found, found.target)


def load_target(found: Found, target: str) -> Any:
    """Import "module:attribute" on behalf of a plugin.

    Raises:
        PluginError: as `load`.
    """
    module, _, attributes = target.partition("[")[0].strip().partition(":")
    if not module or not attributes:
        raise PluginError(f"{found} cannot be loaded: {plain(target)!r} is not of the form module:attribute")
    with blamed(f"{found} cannot be loaded"):
        thing = importlib.import_module(module)
        for attribute in attributes.split("."):
            thing = getattr(thing, attribute)
        return thing
