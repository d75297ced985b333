"""Resolve: from a name to a plugin that is loaded and checked, to its class, to a mixer.

The contract is imported where it is used: `find` and `subquad list` do without pydantic and torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.registry.found import Found, Kind
from subquad.registry.guard import blamed, state_kept
from subquad.registry.load import load, load_target
from subquad.registry.selection import choose
from subquad.registry.source import SourceFile, is_file_name, read_source, run_source

if TYPE_CHECKING:
    from subquad.nn import TokenMixer
    from subquad.plugin import Config, Plugin, Site


@dataclass(frozen=True)
class Resolved:
    """A plugin that is loaded and checked.

    Attributes:
        plugin: its descriptor.
        found: where it came from.
        source: its text, for a mixer in a file.
    """

    plugin: Plugin
    found: Found
    source: SourceFile | None = None


def resolve(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """Load and check the one plugin that is asked for.

    Args:
        kind: "mixer", "backbone", "task" or "dataset".
        name: a name, `distribution:name`, or for a mixer `./file.py:Class`.
        base: folder a relative file starts from; the working directory where None.

    Raises:
        PluginError: unknown, ambiguous, blocked, broken or of another API version.
    """
    if kind in ("recipe", "space"):
        raise PluginError(f"a {kind} is a YAML file, not a plugin that can be loaded")
    if is_file_name(name):
        if kind != "mixer":
            raise PluginError(f"{kind} {name!r}: only a mixer may be given as a file")
        return load_source(read_source(name, base))
    found = choose(kind, name)
    with state_kept():
        return Resolved(check(found, load(found)), found)


def load_source(source: SourceFile) -> Resolved:
    """Rebuild a mixer from its source text alone, as a worker does.

    Raises:
        PluginError: the text was changed, or it is no mixer.
    """
    with state_kept():
        plugin = check(source.found, run_source(source))
    if not isinstance(plugin.build, type):
        raise PluginError(f"{source.found}: in a file, build must be the class itself, not {plugin.build!r}")
    return Resolved(plugin, source.found, source)


def check(found: Found, thing: Any) -> Plugin:
    """The descriptor that an entry point stands for; a mixer class is given one.

    Raises:
        PluginError: it breaks the contract.
    """
    from subquad.registry.contract import check_descriptor

    if found.kind == "mixer" and isinstance(thing, type):
        from subquad.registry.classes import check_class, describe_class

        plugin = check_descriptor(found, describe_class(found, thing))
        check_class(found, thing)
        return plugin
    return check_descriptor(found, thing)


def build_class(resolved: Resolved) -> type:
    """The class that does the work, imported now and checked.

    Raises:
        PluginError: it cannot be imported, extends the wrong base or does not implement it.
    """
    from subquad.registry.classes import check_class

    build = resolved.plugin.build
    with state_kept():
        return check_class(resolved.found, load_target(resolved.found, build) if isinstance(build, str) else build)


def check_site(resolved: Resolved, config: Config, site: Site) -> None:
    """Refuse a place where a mixer with these parameters cannot stand. Nothing heavy is imported.

    Raises:
        ConfigError: why, in one line.
    """
    from subquad.plugin import MixerConfig, MixerPlugin

    assert isinstance(resolved.plugin, MixerPlugin)
    facts, name = resolved.plugin.facts_of(config), resolved.found.name
    if site.dim % site.num_heads:
        raise ConfigError(f"mixer {name}: {site.num_heads} heads do not divide the width {site.dim}")
    if site.causal and facts.causal == "never":
        raise ConfigError(f"mixer {name} with these parameters sees later positions and cannot be causal")
    if isinstance(facts.max_length, int) and site.max_len > facts.max_length:
        raise ConfigError(f"mixer {name} takes at most {facts.max_length} positions, got {site.max_len}")
    if isinstance(config, MixerConfig):
        try:
            with blamed(f"{resolved.found} cannot check where it stands", passing=(ValueError,)):
                config.check(site)
        except ValueError as error:
            raise ConfigError(f"mixer.params: {error} (mixer {name})") from error


def make_mixer(resolved: Resolved, config: Config, site: Site) -> TokenMixer:
    """Build the mixer of one site; an attention core is given its projections.

    Raises:
        ConfigError: the mixer cannot stand at this site.
        PluginError: its constructor raised something that is not a `SubquadError`.
    """
    from subquad.nn import AttentionCore, AttentionMixer
    from subquad.plugin import AttentionConfig

    check_site(resolved, config, site)
    cls = build_class(resolved)
    with blamed(f"{resolved.found} cannot be built for layer {site.layer_index}", passing=(SubquadError,)):
        mixer = cls(config, site)
    if isinstance(mixer, AttentionCore):
        return AttentionMixer(mixer, site, config if isinstance(config, AttentionConfig) else None)
    return mixer
