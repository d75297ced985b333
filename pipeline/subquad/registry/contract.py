"""Check: does what an entry point stands for keep the light half of the plugin contract (`subquad.plugin`)?"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from subquad.errors import PluginError
from subquad.plugin import (
    API_VERSION,
    BackbonePlugin,
    Config,
    DatasetPlugin,
    Facts,
    MixerPlugin,
    Plugin,
    TaskPlugin,
)
from subquad.registry.found import Found, Kind
from subquad.registry.text import plain

DESCRIPTORS: dict[Kind, type[Plugin]] = {
    "mixer": MixerPlugin,
    "backbone": BackbonePlugin,
    "task": TaskPlugin,
    "dataset": DatasetPlugin,
}


def check_descriptor(found: Found, thing: Any) -> Plugin:
    """`thing`, once it is known to be the right descriptor with values of the right types.

    Raises:
        PluginError: what is wrong, in one line.
    """
    check_api(found, getattr(thing, "api", API_VERSION))
    wanted = DESCRIPTORS[found.kind]
    if not isinstance(thing, wanted):
        also = " or a TokenMixer or AttentionCore class" if found.kind == "mixer" else ""
        given = thing.__name__ if isinstance(thing, type) else type(thing).__name__
        raise PluginError(f"{found}: {plain(found.target)} is a {plain(given)}, not a {wanted.__name__}{also}")
    check_config(found, thing.config)
    _check_fields(found, thing, wanted)
    if isinstance(thing, MixerPlugin):
        _check_fields(found, thing.facts, Facts, "facts.")
    if not isinstance(thing.build, (str, type)):
        raise PluginError(f'{found}: build is a {type(thing.build).__name__}, not "module:Class" or a class')
    return thing


def check_api(found: Found, api: Any) -> None:
    """Refuse a plugin written for another version of the plugin contract.

    Raises:
        PluginError: which version it needs, which there is, and what to upgrade.
    """
    if type(api) is not int:
        raise PluginError(f"{found}: api is {plain(api)!r}, not a whole number")
    if api != API_VERSION:
        upgrade = "subquad" if api > API_VERSION else found.distribution
        raise PluginError(f"{found} needs plugin API {api}, this subquad has {API_VERSION}: upgrade {plain(upgrade)}")


def check_config(found: Found, config: Any) -> None:
    """Refuse a parameter schema that would let unknown keys or later changes through.

    Raises:
        PluginError: it is not a `Config` subclass, frozen, with extra keys forbidden.
    """
    if not (isinstance(config, type) and issubclass(config, Config)):
        raise PluginError(f"{found}: config is {plain(repr(config))}, not a subclass of subquad.plugin.Config")
    settings = config.model_config
    if not settings.get("frozen") or settings.get("extra") != "forbid":
        raise PluginError(f"{found}: {config.__name__} must stay frozen and forbid extra keys, as Config does")


def _check_fields(found: Found, thing: Any, declared: type, prefix: str = "") -> None:
    hints = get_type_hints(declared)
    for field in fields(declared):
        try:
            TypeAdapter(hints[field.name]).validate_python(getattr(thing, field.name), strict=True)
        except ValidationError as error:
            given = plain(repr(getattr(thing, field.name)), limit=60)
            raise PluginError(f"{found}: {prefix}{field.name} is {given}: {error.errors()[0]['msg']}") from None
