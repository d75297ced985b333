"""Resolve: from a name to a plugin that is loaded and checked, to its class, to a mixer; and what a
run records of it.

The contract is imported where it is used: `find_plugins` and `subquad list` do without pydantic and
torch.
"""

from __future__ import annotations

import hashlib
import importlib
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from inspect import getattr_static, isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import ConfigError, PluginError, SubquadError
from subquad.registry.faults import blamed
from subquad.registry.found import (
    FILE_KINDS,
    Found,
    Kind,
    blocked,
    canonical,
    choose_plugin,
    find_plugins,
)
from subquad.registry.source import SourceFile
from subquad.suggest import to_paste

if TYPE_CHECKING:
    import click

    from subquad.nn import TokenMixer
    from subquad.plugin import Config, Facts, Plugin, Site


_INSTALLERS = re.compile(r"\.\.|[^,]*(\.dist-info/|\.pyc(,|$))")
"""Rows of a RECORD that are not of the wheel's content: scripts and metadata of the installer,
compiled files.
"""


def import_target(found: Found, target: str) -> Any:
    """What "module:attribute" of a plugin stands for, imported now and not checked yet.

    Raises:
        PluginError: it is not of this form, or cannot be imported.
    """
    module, _, attributes = target.partition("[")[0].strip().partition(":")
    if not module or not attributes:
        raise PluginError(
            f"{found} cannot be loaded: {target!r} is not of the form module:attribute"
        )
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
        runs: false for one in a file that is only read, see `read_only`.
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
    if kind in FILE_KINDS:
        raise PluginError(f"a {kind} is a YAML file, not a plugin that can be loaded")
    if kind == "command":
        raise PluginError(f"a command has no parameters to show: `{to_paste(name, '--help')}`")
    if ".py:" in name:
        return load_source(SourceFile.read(kind, name, base))
    return load_plugin(choose_plugin(kind, name))


def load_plugin(found: Found) -> Resolved:
    """Import a plugin and check its descriptor.

    Raises:
        PluginError: its target is not "module:attribute", importing it fails in any way, or it
            breaks the contract.
    """
    from subquad.registry.contract import check_plugin

    return Resolved(check_plugin(found, import_target(found, found.target)), found)


def load_command(found: Found) -> click.Command:
    """Import a command that a plugin adds to the command line.

    Raises:
        PluginError: importing it fails in any way, or it is no `click.Command`.
    """
    import click

    command = import_target(found, found.target)
    if not isinstance(command, click.Command):
        raise PluginError(
            f"{found}: {found.target} is {type(command).__name__}, not a click.Command"
        )
    return command


def load_source(source: SourceFile) -> Resolved:
    """Rebuild a plugin from its source text alone, as a worker does.

    Raises:
        PluginError: the text was changed, or it is no plugin.
    """
    from subquad.registry.contract import check_plugin

    plugin = check_plugin(source.found, source.run())
    if not isinstance(plugin.build, type):
        raise PluginError(
            f"{source.found}: in a file, build must be the class itself, not {plugin.build!r}"
        )
    return Resolved(plugin, source.found, source)


def read_only(source: SourceFile) -> Resolved:
    """What stands in the place of a plugin in a file of which nothing runs, where somebody's
    experiment is only looked at: its parameters are kept as written, and nothing can be built.
    """
    from subquad.plugin import Metric
    from subquad.registry.contract import DESCRIPTORS, AsWritten

    wanted = DESCRIPTORS[source.kind]
    required: dict[str, Any] = {"inputs": (), "targets": (), "reports": {"score": Metric()}}
    names = [field.name for field in fields(wanted)]
    own = {name: required[name] for name in names if name in required}
    plugin = wanted(config=AsWritten, build="", summary="not run", **own)
    return Resolved(plugin, source.found, source, runs=False)


def build_class(resolved: Resolved) -> type:
    """The class that does the work, imported now and checked.

    Raises:
        PluginError: it cannot be imported, extends the wrong base or does not implement it; or it
            does not run here.
    """
    found = resolved.found
    if not resolved.runs:
        raise PluginError(
            f"{found}: looking runs no file that only an experiment or a "
            "folder names; to run it, name it on "
            f"this command line, {found.kind}={found.name}"
        )
    from subquad.registry.contract import check_class

    build = resolved.plugin.build
    if isinstance(build, str):
        build = import_target(found, build)
    return check_class(found, build)


def check_site(resolved: Resolved, config: Config, site: Site) -> None:
    """Refuse a place where a mixer with these parameters cannot stand. Nothing heavy is imported.

    Raises:
        ConfigError: why, in one line.
    """
    from subquad.plugin import MixerConfig, MixerPlugin

    assert isinstance(resolved.plugin, MixerPlugin)
    name = f"mixer {resolved.found.name}"
    reason = _refusal(resolved.plugin.facts_of(config), site)
    if reason:
        raise ConfigError(f"{name}{reason}")
    if isinstance(config, MixerConfig):
        try:
            with blamed(f"{resolved.found} cannot check where it stands", passing=(ValueError,)):
                config.check(site)
        except ValueError as error:
            raise ConfigError(f"mixer.params: {error} ({name})") from error


def _refusal(facts: Facts, site: Site) -> str:
    """Why what a mixer claims does not fit a site; "" where it does."""
    other = f"(role {site.role}); `mixers` can name another for this role"
    claims = " with these parameters"
    if site.dim % site.num_heads:
        return f": {site.num_heads} heads do not divide the width {site.dim}"
    if site.causal and facts.causal == "never":
        return f"{claims} sees later positions and cannot be causal {other}"
    if site.role == "cross" and not facts.cross:
        return f"{claims} mixes one sequence and cannot let it see another {other}"
    if isinstance(facts.max_length, int) and site.max_len > facts.max_length:
        return f" takes at most {facts.max_length} positions, got {site.max_len}"
    return ""


def make_mixer(resolved: Resolved, config: Config, site: Site) -> TokenMixer:
    """Build the mixer of one site; an attention core is given its projections.

    Raises:
        ConfigError: the mixer cannot stand at this site.
        PluginError: its constructor raised something that is not a `SubquadError`, or leaves
            weights to the first call, or sets a method of every mixer.
    """
    from torch.nn.parameter import is_lazy

    from subquad.nn import AttentionCore, AttentionMixer
    from subquad.plugin import AttentionConfig, MixerConfig, MixerPlugin

    check_site(resolved, config, site)
    given = config
    cls = build_class(resolved)
    with blamed(
        f"{resolved.found} cannot be built for layer {site.layer_index}", passing=(SubquadError,)
    ):
        if isinstance(config, MixerConfig):
            config = config.at(site)
        mixer = _constructed(resolved, cls, config, site)
    lazy = [name for name, weight in mixer.named_parameters() if is_lazy(weight)]
    if lazy:
        raise PluginError(
            f"{resolved.found}: {', '.join(lazy)} would be made in the first call; "
            "training needs it before"
        )
    if isinstance(mixer, AttentionCore):
        mixer = AttentionMixer(mixer, site, config if isinstance(config, AttentionConfig) else None)
    assert isinstance(resolved.plugin, MixerPlugin)
    longest = resolved.plugin.facts_of(config).max_length
    if longest == "site":
        longest = site.max_len
    if longest:
        mixer.register_forward_pre_hook(
            partial(_refuse_longer, resolved.found.name, longest), with_kwargs=True
        )
    mixer.followed = ", ".join(
        [f"{name} {value}" for name, value in config if value != getattr(given, name)]
    )
    return mixer


def _refuse_longer(
    name: str, longest: int, mixer: TokenMixer, given: tuple[Any, ...], words: dict[str, Any]
) -> None:
    """Before a mixer's own code sees a longer sequence than it was built for.

    Raises:
        PluginError: it is longer.
    """
    length = (given[0] if given else words["x"]).shape[1]
    if length > longest:
        raise PluginError(f"{name}: got {length} positions, and it was built for {longest}")


def _constructed(resolved: Resolved, cls: type, config: Config, site: Site) -> Any:
    """A mixer or core.

    Raises:
        PluginError: it sets an attribute that is a method of every one.
    """
    from subquad.nn import AttentionCore, TokenMixer

    methods = set[str]()
    for name in {*vars(TokenMixer), *vars(AttentionCore)} - {"forward"}:
        held = getattr_static(cls, name, None)
        if (isfunction(held) or type(held) is property) and not name.startswith("_"):
            methods.add(name)
    mixer: Any = None
    try:
        mixer = cls(config, site)
        taken = methods.intersection({*vars(mixer), *mixer._modules})
    except KeyError as error:  # torch's words for a weight or a buffer of that name
        taken = {name for name in methods if f"attribute '{name}' already exists" in str(error)}
        if not taken:
            raise
    if taken:
        raise PluginError(
            f"{resolved.found}: self.{min(taken)} is a method of every mixer: "
            "give that attribute another name"
        )
    return mixer


def plugin_facts(resolved: Resolved) -> dict[str, Any]:
    """Where a plugin came from, for environment.json.

    Returns:
        kind, name, distribution, version, api, source (the path of a plugin in a file, else None),
        editable, and sha256: of the file's bytes, or of the rows of the distribution's RECORD that
        list its own code and data (rows that differ between two installations of one wheel are left
        out); None where it has no RECORD.
    """
    found = resolved.found
    source = resolved.source
    own = {"editable": False, "sha256": source.sha256} if source else _installed(found)
    return {
        "kind": found.kind,
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "api": resolved.plugin.api,
        "source": source and source.path,
        **own,
    }


def verify_same(expected: Sequence[Mapping[str, Any]]) -> None:
    """Check on this node that it has the plugins another one recorded with `plugin_facts`. Imports
    none of them.

    Args:
        expected: one record per plugin; those in a file travel as text and are not looked for.

    Raises:
        PluginError: names this node and all that it lacks, or has in another version.
    """
    problems = dict.fromkeys(_difference(facts) for facts in expected if not facts.get("source"))
    lacking = "; ".join(filter(None, problems))
    if lacking:
        raise PluginError(f"node {platform.node()}: {lacking}")


def _difference(facts: Mapping[str, Any]) -> str:
    """What this node lacks of a plugin; "" where it has it."""
    owner = canonical(facts["distribution"])
    wanted = Found(facts["kind"], facts["name"], owner, facts["version"], "")
    same = [row for row in find_plugins(wanted.kind) if row.full_name == wanted.full_name]
    if not same:
        return f"{wanted} is not installed here"
    reason = blocked(owner)
    if reason:
        return f"{wanted} is blocked here: {reason}"
    version = same[0].version
    if version != wanted.version:
        return f"{wanted} is here in version {version}"
    here = _installed(wanted)
    # an editable installation's RECORD does not list its code
    is_editable = facts.get("editable") or here["editable"]
    if is_editable or facts.get("sha256") in (None, here["sha256"]):
        return ""
    return f"{wanted} has other files here under the same version"


def _installed(found: Found) -> dict[str, Any]:
    """Whether a distribution is editable, and the sha256 of what its RECORD lists as its own."""
    facts: dict[str, Any] = {"editable": False, "sha256": None}
    try:
        owner = distribution(found.distribution)
    except PackageNotFoundError:
        return facts
    facts["editable"] = bool(
        re.search(r'"editable":\s*true', owner.read_text("direct_url.json") or "")
    )
    record = owner.read_text("RECORD")
    if record is not None:
        rows = [row for row in sorted(record.splitlines()) if not _INSTALLERS.match(row)]
        facts["sha256"] = hashlib.sha256("\n".join(rows).encode()).hexdigest()
    return facts
