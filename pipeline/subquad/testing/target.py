"""What a user points at: a name, `./file.py:Class`, a class, or a descriptor."""

from __future__ import annotations

from subquad.plugin import MixerPlugin
from subquad.registry import Found, Resolved, resolve
from subquad.registry.loaded import check_plugin

Target = str | type | MixerPlugin | Resolved


def resolved(target: Target) -> Resolved:
    """The plugin that is meant.

    Args:
        target: a plugin's name, `./file.py:Class`, a `TokenMixer` or `AttentionCore` class with `Config` and `facts`,
            or a `MixerPlugin`.

    Raises:
        PluginError: there is no such mixer, or it breaks the contract.
    """
    if isinstance(target, Resolved):
        return target
    if isinstance(target, str):
        return resolve("mixer", target)
    name, home = _name(target)
    found = Found("mixer", name, "", "not installed", f"{home}:{name}")
    plugin = check_plugin(found, target)
    return Resolved(plugin, found)


def _name(target: type | MixerPlugin) -> tuple[str, str]:
    """A name, and the module it comes from."""
    if isinstance(target, type):
        return target.__name__, target.__module__
    build = target.build
    module, _, name = build.partition(":") if isinstance(build, str) else (build.__module__, "", build.__name__)
    return name, module
