"""Resolve: from a name to a plugin that is loaded and checked, to its class, to a mixer; and what a run records of it.

The contract is imported where it is used: `find_plugins` and `subquad list` do without pydantic and torch.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.registry.foreign import blamed
from subquad.registry.found import Found, Kind, blocked, canonical, choose_plugin, find_plugins
from subquad.registry.source import SourceFile

if TYPE_CHECKING:
    import click

    from subquad.nn import TokenMixer
    from subquad.plugin import Config, Plugin, Site


def _import(found: Found, target: str) -> Any:
    """What "module:attribute" of a plugin stands for, not checked yet."""
    module, _, attributes = target.partition("[")[0].strip().partition(":")
    if not module or not attributes:
        raise PluginError(f"{found} cannot be loaded: {target!r} is not of the form module:attribute")
    with blamed(f"{found} cannot be loaded"):
        thing = importlib.import_module(module)
        for attribute in attributes.split("."):
            thing = getattr(thing, attribute)
        return thing


@dataclass(frozen=True)
class Resolved:
    """A plugin that is loaded and checked.

    Attributes:
        plugin: its descriptor.
        found: where it came from.
        source: its text, for a plugin in a file.
        runs: false for one in a file that is only read, see `registry.unrun`.
    """

    plugin: Plugin
    found: Found
    source: SourceFile | None = None
    runs: bool = True


def resolve(kind: Kind, name: str, *, base: Path | None = None) -> Resolved:
    """Load and check the one plugin that is asked for.

    Args:
        kind: "mixer", "backbone", "task" or "dataset".
        name: a name, `distribution:name` or `./file.py:Class`.
        base: folder a relative file starts from; the working directory where None.

    Raises:
        PluginError: unknown, ambiguous, blocked, broken or of another API version.
    """
    if kind in ("recipe", "space", "published"):
        raise PluginError(f"a {kind} is a YAML file, not a plugin that can be loaded")
    if kind == "command":
        raise PluginError(f"a command has no parameters to show: `subquad {name} --help`")
    if ".py:" in name:
        return load_source(SourceFile.read(kind, name, base))
    return load_plugin(choose_plugin(kind, name))


def load_plugin(found: Found) -> Resolved:
    """Import a plugin and check its descriptor.

    Raises:
        PluginError: its target is not "module:attribute", importing it fails in any way, or it breaks the contract.
    """
    from subquad.registry.contract import check_plugin

    return Resolved(check_plugin(found, _import(found, found.target)), found)


def load_command(found: Found) -> click.Command:
    """Import a command that a plugin adds to the command line.

    Raises:
        PluginError: importing it fails in any way, or it is no `click.Command`.
    """
    import click

    command = _import(found, found.target)
    if not isinstance(command, click.Command):
        raise PluginError(f"{found}: {found.target} is {type(command).__name__}, not a click.Command")
    return command


def load_source(source: SourceFile) -> Resolved:
    """Rebuild a plugin from its source text alone, as a worker does.

    Raises:
        PluginError: the text was changed, or it is no plugin.
    """
    from subquad.registry.contract import check_plugin

    plugin = check_plugin(source.found, source.run())
    if not isinstance(plugin.build, type):
        raise PluginError(f"{source.found}: in a file, build must be the class itself, not {plugin.build!r}")
    return Resolved(plugin, source.found, source)


def build_class(resolved: Resolved) -> type:
    """The class that does the work, imported now and checked.

    Raises:
        PluginError: it cannot be imported, extends the wrong base or does not implement it; or it does not run here.
    """
    if not resolved.runs:
        raise PluginError(
            f"{resolved.found}: looking runs no file that only an experiment or a folder names; to run it, name it on "
            f"this command line, {resolved.found.kind}={resolved.found.name}"
        )
    from subquad.registry.contract import check_class

    build = resolved.plugin.build
    return check_class(resolved.found, _import(resolved.found, build) if isinstance(build, str) else build)


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
    why, other = f"mixer {name} with these parameters", f"(role {site.role}); `mixers` can name another for this role"
    if site.causal and facts.causal == "never":
        raise ConfigError(f"{why} sees later positions and cannot be causal {other}")
    if site.role == "cross" and not facts.cross:
        raise ConfigError(f"{why} mixes one sequence and cannot let it see another {other}")
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
        PluginError: its constructor raised something that is not a `SubquadError`, or leaves weights to the first call.
    """
    from torch.nn.parameter import is_lazy

    from subquad.nn import AttentionCore, AttentionMixer
    from subquad.plugin import AttentionConfig

    check_site(resolved, config, site)
    cls = build_class(resolved)
    with blamed(f"{resolved.found} cannot be built for layer {site.layer_index}", passing=(SubquadError,)):
        mixer = cls(config, site)
    if lazy := [name for name, weight in mixer.named_parameters() if is_lazy(weight)]:
        raise PluginError(
            f"{resolved.found}: {', '.join(lazy)} would be made in the first call; training needs it before"
        )
    if isinstance(mixer, AttentionCore):
        return AttentionMixer(mixer, site, config if isinstance(config, AttentionConfig) else None)
    return mixer


def plugin_facts(resolved: Resolved) -> dict[str, Any]:
    """Where a plugin came from, for environment.json.

    Returns:
        kind, name, distribution, version, api, source (the path of a plugin in a file, else None), editable, and
        sha256: of the file's bytes, or of the rows of the distribution's RECORD that list its own code and data (rows
        that differ between two installations of one wheel are left out); None where it has no RECORD.
    """
    found, source = resolved.found, resolved.source
    return {
        "kind": found.kind,
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "api": resolved.plugin.api,
        "source": source.path if source else None,
        **({"editable": False, "sha256": source.sha256} if source else _installed(found.distribution)),
    }


def verify_same(expected: Sequence[Mapping[str, Any]]) -> None:
    """Check on this node that it has the plugins another one recorded with `plugin_facts`. Imports none of them.

    Args:
        expected: one record per plugin; those in a file travel as text and are not looked for.

    Raises:
        PluginError: names this node and all that it lacks, or has in another version.
    """
    problems = dict.fromkeys(_difference(one) for one in expected if not one.get("source"))
    if told := "; ".join(filter(None, problems)):
        raise PluginError(f"node {platform.node()}: {told}")


def _difference(expected: Mapping[str, Any]) -> str:
    """What this node lacks of a plugin; "" where it has it."""
    owner, version = expected["distribution"], expected["version"]
    label = f"{expected['kind']} {expected['name']!r} ({owner} {version})"
    wanted = (expected["name"], canonical(owner))
    same = [one for one in find_plugins(expected["kind"]) if (one.name, one.distribution) == wanted]
    if not same:
        return f"{label} is not installed here"
    if reason := blocked(owner):
        return f"{label} is blocked here: {reason}"
    if same[0].version != version:
        return f"{label} is here in version {same[0].version}"
    installed = _installed(owner)
    if expected.get("editable") or installed["editable"] or not expected.get("sha256"):
        return ""  # an editable installation's RECORD does not list its code
    same_files = installed["sha256"] == expected["sha256"]
    return "" if same_files else f"{label} has other files here under the same version"


def _installed(name: str) -> dict[str, Any]:
    try:
        owner = distribution(name)
    except PackageNotFoundError:
        return {"editable": False, "sha256": None}
    try:
        origin = json.loads(owner.read_text("direct_url.json") or "{}")
    except ValueError:
        origin = {}
    record = owner.read_text("RECORD")
    rows = sorted(row for row in (record or "").splitlines() if _is_own(row.split(",")[0]))
    sha256 = None if record is None else hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return {"editable": bool(origin.get("dir_info", {}).get("editable", False)), "sha256": sha256}


def _is_own(path: str) -> bool:
    """Whether a RECORD row is of the wheel's content: no script or metadata of the installer, no compiled file."""
    return not path.startswith("..") and ".dist-info/" not in path and not path.endswith(".pyc")
