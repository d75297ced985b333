"""Every setting has an effect where it is accepted, and is refused where its `when` does not hold.

A mixer's settings are drawn. Then one of them is changed. Where no other value that is accepted
changes anything at all (facts, parameters, buffers, outputs, losses or gradients, bit for bit), its
`when` is missing or too wide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from torch import Tensor

from subquad.errors import ConfigError, UserError
from subquad.experiment.refusals import validated
from subquad.experiment.schema import Resources, Train
from subquad.nn import as_output
from subquad.plugin import Config, MixerPlugin, Site, inherited, param
from subquad.plugin.effect import default_of, effect_of, own_effect, same
from subquad.registry import Resolved, find_plugins, resolve
from subquad.registry.loaded import check_site, make_mixer

KINDS: tuple[Any, ...] = ("mixer", "backbone", "task", "dataset")
SITE = Site(dim=16, num_heads=2, max_len=24)
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 0.0, 0.25, 0.5, 1.0, 2.0)
DRAWS = 1
TRIED = 8
"""Other values of a setting of which one must change something."""

EXPLAINED = {
    ("local", "block"): "a window of null sees 64 tokens, which is all of these",
    ("primal", "tokens_per_rank"): "with a large rank it means more tokens than these",
}
"""Settings of mixers that may be without an effect on sequences as short as these, each with the
reason.
"""


def plugins() -> list[Any]:
    """All built-in ones with parameters, and the sections of an experiment."""
    found = [
        (kind, plugin.name)
        for kind in KINDS
        for plugin in find_plugins(kind)
        if plugin.distribution == "subquad"
    ]
    schemas = [
        pytest.param(resolve(kind, name).plugin.config, id=f"{kind}-{name}") for kind, name in found
    ]
    return [*schemas, pytest.param(Train, id="train"), pytest.param(Resources, id="resources")]


def pool(config: type[Config], name: str) -> list[Any]:
    """Values that a field may have by itself, from its type, its search and small numbers."""
    spec = config.model_fields[name]
    extra = spec.json_schema_extra if isinstance(spec.json_schema_extra, dict) else {}
    search: Any = extra.get("search") or {}
    kinds = (
        get_args(spec.annotation)
        if get_origin(spec.annotation) is not Literal
        else (spec.annotation,)
    )
    named = [
        value
        for kind in (spec.annotation, *kinds)
        if get_origin(kind) is Literal
        for value in get_args(kind)
    ]
    ends = [search[end] for end in ("low", "high") if end in search]
    tried = [
        *named,
        *search.get("choices", ()),
        *ends,
        True,
        False,
        *NUMBERS,
        None,
        "x",
        ["x"],
        [1.0, 0.5],
    ]
    if name in getattr(config, "counted", ()):
        tried = [value for value in tried if value != 0]  # the default, here all tokens
    found: list[Any] = []
    for value in tried:
        _, faults = validated(config, {**required(config), name: value}, (), dict)
        if not any(fault.path == (name,) for fault in faults) and not any(
            same(value, known) for known in found
        ):
            found.append(value)
    return found if len(found) > 1 else [*found, 512]


def required(config: type[Config]) -> dict[str, Any]:
    return {name: "x" for name, spec in config.model_fields.items() if spec.is_required()}


@pytest.mark.parametrize("config", plugins())
def test_a_setting_is_refused_where_its_when_does_not_hold(config):
    for name, spec in config.model_fields.items():
        for condition in own_effect(spec)[0]:
            other = default_of(spec)
            changed = next(value for value in pool(config, name) if not same(value, other))
            against = [value for value in pool(config, condition.key) if not condition.holds(value)]
            assert against, (name, condition)
            params = {**required(config), condition.key: against[0], name: changed}
            met = [
                alternative
                for alternative in effect_of(config, name)
                if condition not in alternative
            ]
            _, faults = validated(config, params, (), dict)
            assert met or any("has no effect with" in fault.message for fault in faults), (
                name,
                params,
                faults,
            )


def accepted(plugin: Resolved, params: Mapping[str, Any], site: Site = SITE) -> Any:
    """Parameters that are accepted at the site; None where they are refused."""
    config, _ = validated(plugin.plugin.config, dict(params), (), dict)
    try:
        if config is not None:
            check_site(plugin, config, site)
    except UserError:
        return None
    return config


def traces(plugin: Resolved, config: Any, site: Site, inputs: int = 0) -> list[Tensor] | None:
    """All that parameters may change: bits of parameters, buffers, outputs, losses, gradients;
    None where refused.
    """
    torch.manual_seed(0)
    try:
        mixer = make_mixer(plugin, config, site).double()
    except ConfigError:
        return None
    torch.manual_seed(1 + inputs)
    for parameter in mixer.parameters():  # what starts at zero or one hides what is done to it
        parameter.data += 0.01 * torch.randn_like(parameter)
    x = torch.randn(3, site.max_len, site.dim, dtype=torch.float64, requires_grad=True)
    keep = torch.arange(site.max_len) < torch.tensor([[site.max_len], [13], [7]])
    found = [tensor for _, tensor in sorted(mixer.state_dict().items())]
    found.append(torch.tensor([weight for _, weight in sorted(mixer.loss_weights.items())]))
    for training in (True, True, False):
        result = as_output(mixer.train(training)(x, keep=keep))
        out = torch.where(keep[..., None], result.out, 0)
        losses = [value for _, value in sorted(result.losses.items())]
        total = sum((value.sum() for value in losses), (out * out.detach().cos()).sum())
        parameters = [value for value in mixer.parameters() if value.requires_grad]
        given = (
            torch.autograd.grad(total, [x, *parameters], allow_unused=True)
            if total.requires_grad
            else ()
        )
        found += [out, *losses, *(torch.zeros(()) if grad is None else grad for grad in given)]
    return [tensor.detach().clone() for tensor in found]


def differ(plugin: Resolved, config: Any, other: Any, site: Site = SITE) -> bool | None:
    """Whether two sets of parameters make different mixers; None where one is refused on being
    built.
    """
    assert isinstance(plugin.plugin, MixerPlugin)
    if plugin.plugin.facts_of(config) != plugin.plugin.facts_of(other):
        return True
    for inputs in range(3):  # what is selected from one of them may be the same by chance
        first, second = traces(plugin, config, site, inputs), traces(plugin, other, site, inputs)
        if first is None or second is None:
            return None
        if len(first) != len(second) or not all(map(torch.equal, first, second)):
            return True
    return False


def drawn(
    plugin: Resolved, random: np.random.Generator, site: Site = SITE
) -> Iterator[dict[str, Any]]:
    """The defaults, and settings of random values, each of which is accepted beside those before
    it.
    """
    config = plugin.plugin.config
    pools = {name: pool(config, name) for name in config.model_fields}
    yield {}
    for _ in range(DRAWS):
        params: dict[str, Any] = {}
        for name in random.permutation(list(pools)).tolist():
            value = pools[name][int(random.integers(len(pools[name])))]
            if (
                random.random() < 0.7
                and accepted(plugin, {**params, name: value}, site) is not None
            ):
                params[name] = value
        yield params


def without_effect(plugin: Resolved, seed: int, site: Site = SITE) -> list[str]:
    """Settings that are accepted and change nothing, as `NAME at SETTINGS`."""
    random = np.random.default_rng(seed)
    found: list[str] = []
    for params in drawn(plugin, random, site):
        config = accepted(plugin, params, site)
        if config is None or traces(plugin, config, site) is None:
            continue
        if config.at(site) != config:  # as many as there are tokens: nothing is left to choose
            continue
        for name in plugin.plugin.config.model_fields:
            values = [
                value
                for value in pool(plugin.plugin.config, name)
                if not same(value, getattr(config, name))
            ]
            order = random.permutation(len(values)).tolist()
            others = [accepted(plugin, {**params, name: values[place]}, site) for place in order]
            differences = (
                differ(plugin, config, other, site) for other in others[:TRIED] if other is not None
            )
            answers = [answer for answer in differences if answer is not None]
            if answers and not any(answers) and (plugin.found.name, name) not in EXPLAINED:
                found.append(f"{name} at {params}")
    return found


MIXERS = [found.name for found in find_plugins("mixer") if found.distribution == "subquad"]


@pytest.mark.ci
@pytest.mark.parametrize("name", MIXERS)
def test_every_accepted_setting_of_a_mixer_changes_something(name):
    assert without_effect(resolve("mixer", name), seed=0) == []


def planted(name: str, field: str) -> Resolved:
    """A mixer whose field has lost its `when`."""
    found = resolve("mixer", name)
    config = found.plugin.config
    spec = inherited(config, field, when=())
    members = {"__annotations__": {field: spec.annotation}, field: spec, "__module__": __name__}
    return replace(found, plugin=replace(found.plugin, config=type("Config", (config,), members)))


@pytest.mark.parametrize(("name", "field"), [("cur", "ridge"), ("fourier", "terms")])
def test_a_when_that_is_deleted_is_found(name, field):
    faulty = planted(name, field)
    assert {line.partition(" at ")[0] for line in without_effect(faulty, seed=0)} == {field}


class Chained(Config):
    kind: Literal["a", "b"] = param("a", meaning="m")
    size: int = param(1, meaning="m", when={"kind": ("b",)})
    depth: int = param(1, meaning="m", when={"size": (1, 2)})
    either: int = param(1, meaning="m", when=({"depth": (5,)}, {"kind": ("a",)}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 2}, "size 2 has no effect with kind a: leave it at 1, or use kind b"),
        ({"depth": 2}, "depth 2 has no effect with kind a: leave it at 1, or use kind b"),
        (
            {"kind": "b", "size": 3, "depth": 2},
            "depth 2 has no effect with size 3: leave it at 1, or use size 1 or 2",
        ),
        (
            {"kind": "b", "either": 2},
            "either 2 has no effect with depth 1 and kind b: leave it at 1, or use "
            "depth 5 or kind a",
        ),
    ],
)
def test_a_condition_on_what_has_no_effect_does_not_hold(given, message):
    _, faults = validated(Chained, given, (), dict)
    assert [fault.message for fault in faults] == [message]


def test_conditions_that_a_plugin_got_wrong_are_told_at_once():
    def made(**when: Any) -> type[Config]:
        members: dict[str, Any] = {
            "__annotations__": dict.fromkeys(when, int),
            "__module__": __name__,
        }
        fields = {name: param(1, meaning="m", when=given) for name, given in when.items()}
        return type("Made", (Config,), members | fields)

    with pytest.raises(TypeError, match="the `when` of a names 'b', which is no field"):
        made(a={"b": (1,)})
    with pytest.raises(TypeError, match=r"`when` goes in a circle .a -> b -> a."):
        made(a={"b": (1,)}, b={"a": (1,)})
    needed = param(meaning="m", when={"b": (1,)})
    with pytest.raises(TypeError, match="a has a `when`, and no default to leave it at"):
        type(
            "Made",
            (Config,),
            {"__annotations__": {"b": int, "a": int}, "__module__": __name__, "b": 1, "a": needed},
        )
