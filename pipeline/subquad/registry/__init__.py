"""Plugins in three stages: found (metadata only), loaded (only the one asked for), checked (keeps
the contract).

In: a kind and a name, or a file. Out: the plugin, its parameters, where it came from. Imports the
contract; neither pydantic nor torch is loaded before a plugin is. Knows of no experiment.
"""

from subquad.registry.faults import stdout_to_stderr
from subquad.registry.found import GROUPS, Found, Kind, blocked, choose_plugin, clash, find_plugins
from subquad.registry.loaded import (
    Resolved,
    build_class,
    import_target,
    load_command,
    load_source,
    make_mixer,
    plugin_facts,
    resolve,
    verify_same,
)
from subquad.registry.parameters import ParameterRow, describe_config
from subquad.registry.shipped import Recipe, recipe, recipes
from subquad.registry.source import SourceFile, imported_by

__all__ = [
    "GROUPS",
    "Found",
    "Kind",
    "ParameterRow",
    "Recipe",
    "Resolved",
    "SourceFile",
    "blocked",
    "build_class",
    "choose_plugin",
    "clash",
    "describe_config",
    "find_plugins",
    "import_target",
    "imported_by",
    "load_command",
    "load_source",
    "make_mixer",
    "plugin_facts",
    "recipe",
    "recipes",
    "resolve",
    "stdout_to_stderr",
    "verify_same",
]
