"""Check: does what an entry point stands for keep the plugin contract, descriptor and class?"""

from __future__ import annotations

import inspect
from dataclasses import fields
from inspect import Parameter
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError

from subquad.errors import PluginError, escaped
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

DESCRIPTORS: dict[Kind, type[Plugin]] = {
    "mixer": MixerPlugin,
    "backbone": BackbonePlugin,
    "task": TaskPlugin,
    "dataset": DatasetPlugin,
}


class AsWritten(Config, extra="allow"):
    """Parameters whose schema is in a file that does not run: any, kept as they are written."""


def check_plugin(found: Found, thing: Any) -> Plugin:
    """The descriptor that an entry point stands for, with values of the right types; a class is
    given one.

    Raises:
        PluginError: it breaks the contract; what is wrong, in one line.
    """
    if found.kind == "mixer" and isinstance(thing, type):
        from subquad.nn.bare import bare_mixer, fault_of, is_bare

        if is_bare(thing):  # the class of a torch module that knows nothing of subquad
            if fault := fault_of(thing):
                raise PluginError(f"{found}: {fault}")
            thing = bare_mixer(thing)
    if isinstance(thing, type) and not issubclass(thing, Plugin):
        plugin = check_plugin(found, _described(found, thing))
        check_class(found, thing)
        return plugin
    _check_api(found, getattr(thing, "api", API_VERSION))
    wanted = DESCRIPTORS[found.kind]
    if not isinstance(thing, wanted):
        bases = " or ".join(base.__name__ for base in _bases(found.kind))
        raise PluginError(
            f"{found}: {found.target} is a {_name_of(thing)}, "
            f"not a {wanted.__name__} or a {bases} class"
        )
    _check_config(found, thing.config)
    _check_fields(found, thing, wanted)
    if isinstance(thing, MixerPlugin):
        _check_fields(found, thing.facts, Facts, "facts.")
    if not isinstance(thing.build, (str, type)):
        raise PluginError(
            f'{found}: build is a {_name_of(thing.build)}, not "module:Class" or a class'
        )
    return thing


def _check_api(found: Found, api: Any) -> None:
    """Refuse a plugin that was written for another version of the contract."""
    if type(api) is not int:
        raise PluginError(f"{found}: api is {str(api)!r}, not a whole number")
    if api == API_VERSION:
        return
    outdated = "subquad" if api > API_VERSION else found.distribution
    raise PluginError(
        f"{found} needs plugin API {api}, this subquad has {API_VERSION}: upgrade {outdated}"
    )


def _name_of(thing: Any) -> str:
    return (thing if isinstance(thing, type) else type(thing)).__name__


def _check_config(found: Found, config: Any) -> None:
    """Refuse a parameter schema that would let unknown keys or later changes through."""
    if not isinstance(config, type) or not issubclass(config, Config):
        raise PluginError(f"{found}: config is {config!r}, not a subclass of subquad.plugin.Config")
    settings = config.model_config
    if not settings.get("frozen") or settings.get("extra") != "forbid":
        raise PluginError(
            f"{found}: {config.__name__} must stay frozen and forbid extra keys, as Config does"
        )


def _check_fields(found: Found, thing: Any, declared: type, prefix: str = "") -> None:
    hints = get_type_hints(declared)
    for field in fields(declared):
        value = getattr(thing, field.name)
        kind = TypeAdapter(hints[field.name])
        try:
            kind.validate_python(value, strict=True)
        except ValidationError as error:
            first = error.errors()[0]
            raise PluginError(
                f"{found}: {prefix}{field.name} is {escaped(repr(value), limit=60)}: {first['msg']}"
            ) from None


_CALLS: dict[Kind, str] = {
    "mixer": "(config, site)",
    "backbone": "(config, context)",
    "task": "(config, spec)",
    "dataset": "(config, root)",
}

_OWN_FIELDS: dict[Kind, dict[str, str]] = {
    "mixer": {"Config": "a subquad.plugin.MixerConfig", "facts": "a subquad.plugin.Facts"},
    "backbone": {
        "Config": "a subquad.plugin.BackboneConfig",
        "inputs": 'such as ("tokens",)',
        "targets": 'such as ("class",)',
    },
    "task": {
        "Config": "a subquad.plugin.Config",
        "targets": 'such as ("class",)',
        "reports": 'such as {"accuracy": Metric(unit="%")}',
    },
    "dataset": {
        "Config": "a subquad.plugin.DatasetConfig",
        "inputs": 'such as "series"',
        "targets": 'such as ("class",)',
    },
}
"""What a class must say of itself where it comes without a descriptor, with an example."""


def _bases(kind: Kind) -> tuple[type, ...]:
    """The classes one of which a plugin of this kind must extend. Imports torch, except for data
    sets.
    """
    if kind == "dataset":
        from subquad.data import Dataset

        return (Dataset,)
    from subquad.nn import AttentionCore, Backbone, Task, TokenMixer

    return {"mixer": (TokenMixer, AttentionCore), "backbone": (Backbone,), "task": (Task,)}[kind]


def check_class(found: Found, cls: Any) -> type:
    """`cls`, once it is known to extend the right base, to implement it, and to take the arguments
    it is called with.

    Raises:
        PluginError: what is wrong, naming the method.
    """
    base = _base_of(found, cls)
    label = f"{found}: {cls.__name__}"
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        raise PluginError(
            f"{label} does not implement {', '.join([_wanted(base, name) for name in missing])}"
        )
    for name in sorted(getattr(base, "__abstractmethods__", ())):
        _check_method(label, cls, base, name)
    _check_constructor(label, cls, base, _CALLS[found.kind])
    return cls


def _described(found: Found, cls: Any) -> Plugin:
    """The descriptor of a plugin that was given as a class with `Config` and the descriptor's
    fields of its own.
    """
    _base_of(found, cls)
    for attribute, example in _OWN_FIELDS[found.kind].items():
        if not hasattr(cls, attribute):
            raise PluginError(
                f"{found}: {cls.__name__} has no class attribute {attribute} ({example})"
            )
    wanted = DESCRIPTORS[found.kind]
    summary, _, _ = inspect.cleandoc(cls.__doc__ or "").partition("\n")
    own = {
        field.name: getattr(cls, field.name) for field in fields(wanted) if hasattr(cls, field.name)
    }
    return wanted(**{"summary": summary, **own, "config": cls.Config, "build": cls})


def _base_of(found: Found, cls: Any) -> type:
    allowed = _bases(found.kind)
    for base in allowed:
        if isinstance(cls, type) and issubclass(cls, base):
            return base
    home = "subquad.data" if found.kind == "dataset" else "subquad.nn"
    names = [f"{home}.{base.__name__}" for base in allowed]
    raise PluginError(
        f"{found}: {getattr(cls, '__name__', repr(cls))} is not a subclass of {' or '.join(names)}"
    )


def _check_method(label: str, cls: type, base: type, name: str) -> None:
    """Refuse a method that cannot be called as the contract says."""
    declared = inspect.getattr_static(base, name)
    if isinstance(declared, property):
        if inspect.isfunction(inspect.getattr_static(cls, name)):
            raise PluginError(f"{label}.{name} is a method, not a property")
        return
    method = getattr(cls, name)
    entries = inspect.signature(declared).parameters.values()
    positional = [entry for entry in entries if entry.kind is Parameter.POSITIONAL_OR_KEYWORD]
    keywords = [entry.name for entry in entries if entry.kind is Parameter.KEYWORD_ONLY]
    try:
        if not callable(method):
            raise TypeError(f"it is a {type(method).__name__}")
        inspect.signature(method).bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        raise PluginError(f"{label} must have {_wanted(base, name)}: {error}") from None


def _check_constructor(label: str, cls: type, base: type, call: str) -> None:
    signature = inspect.signature(cls)
    if cls.__init__ is base.__init__:
        kinds = {parameter.kind for parameter in signature.parameters.values()}
        if kinds <= {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}:
            raise PluginError(f"{label} has no __init__ of its own, it is built as cls{call}")
    try:
        signature.bind(None, None)
    except TypeError as error:
        raise PluginError(f"{label} must be built as cls{call}: {error}") from None


def _wanted(base: type, name: str) -> str:
    """A method as the contract declares it: `forward(x, *, keep=None, carry=None)`."""
    declared = inspect.getattr_static(base, name)
    if isinstance(declared, property):
        return f"the property {name}"
    _, *parameters = inspect.signature(declared).parameters.values()
    bare = [parameter.replace(annotation=Parameter.empty) for parameter in parameters]
    return f"{name}{inspect.Signature(bare)}"
