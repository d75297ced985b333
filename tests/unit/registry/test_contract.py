"""What a plugin must keep, and how each breach is told."""

import dataclasses

import pytest

from subquad.errors import PluginError
from subquad.nn import Task, TokenMixer
from subquad.plugin import (
    Config,
    DatasetPlugin,
    Facts,
    Metric,
    MixerConfig,
    MixerPlugin,
    TaskPlugin,
)
from subquad.registry import Found
from subquad.registry.contract import check_class, check_plugin

FOUND = Found("mixer", "toy", "owner", "1.0", "toys:PLUGIN")
TASK = dataclasses.replace(FOUND, kind="task")
DATASET = dataclasses.replace(FOUND, kind="dataset")
GOOD = MixerPlugin(config=MixerConfig, build="toys:Toy", summary="a toy")


class Loose(MixerConfig, extra="allow"):
    pass


class Melting(MixerConfig, frozen=False):
    pass


def test_a_good_descriptor_is_returned_as_it_is():
    assert check_plugin(FOUND, GOOD) is GOOD


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"api": 2},
            r"mixer 'toy' \(owner 1\.0\) needs plugin API 2, this subquad has 1: upgrade subquad$",
        ),
        (
            {"api": 0},
            r"mixer 'toy' \(owner 1\.0\) needs plugin API 0, this subquad has 1: upgrade owner$",
        ),
        ({"api": "1"}, r"api is '1', not a whole number"),
        ({"api": True}, r"api is 'True', not a whole number"),
        ({"config": dict}, r"config is <class 'dict'>, not a subclass of subquad\.plugin\.Config"),
        ({"config": MixerConfig()}, r"config is MixerConfig\(\), not a subclass of"),
        ({"config": Loose}, r"Loose must stay frozen and forbid extra keys"),
        ({"config": Melting}, r"Melting must stay frozen and forbid extra keys"),
        ({"summary": None}, r"summary is None: Input should be a valid string"),
        ({"paper": 3}, r"paper is 3: Input should be a valid string"),
        ({"build": 3}, r'build is a int, not "module:Class" or a class'),
        ({"facts": {}}, r"facts is \{\}: Input should be an instance of Facts"),
        (
            {"facts": Facts(causal="maybe")},
            r"facts\.causal is 'maybe': Input should be 'never', 'optional' or 'always'",
        ),
        ({"facts": Facts(complexity="L^3")}, r"facts\.complexity is 'L\^3': Input should be 'L'"),
    ],
)
def test_a_wrong_descriptor_is_told_in_one_line(change, message):
    with pytest.raises(PluginError, match=message):
        check_plugin(FOUND, dataclasses.replace(GOOD, **change))


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        ({}, r"toys:PLUGIN is a dict, not a MixerPlugin or a TokenMixer or AttentionCore class"),
        (
            TaskPlugin(config=Config, build="a:B", summary="", targets=(), reports={"m": Metric()}),
            r"toys:PLUGIN is a TaskPlugin, not a MixerPlugin",
        ),
    ],
)
def test_a_thing_of_another_type(thing, message):
    with pytest.raises(PluginError, match=message):
        check_plugin(FOUND, thing)


def test_what_is_neither_a_descriptor_nor_a_plugins_class():
    with pytest.raises(
        PluginError, match=r"toys:PLUGIN is a dict, not a TaskPlugin or a Task class$"
    ):
        check_plugin(TASK, {})
    with pytest.raises(PluginError, match=r"Config is not a subclass of subquad\.nn\.Task$"):
        check_plugin(TASK, Config)


def test_a_newer_plugin_is_told_by_its_api_before_its_type():
    class FromTheFuture:
        api = 7

    with pytest.raises(
        PluginError, match=r"needs plugin API 7, this subquad has 1: upgrade subquad"
    ):
        check_plugin(FOUND, FromTheFuture())


def test_a_list_where_a_tuple_is_declared():
    plugin = DatasetPlugin(config=Config, build="a:B", summary="", targets=["t"], inputs="tokens")
    with pytest.raises(PluginError, match=r"targets is \['t'\]: Input should be a valid tuple"):
        check_plugin(DATASET, plugin)


class NoForward(TokenMixer):
    pass


class Narrow(TokenMixer):
    def __init__(self, config, site):
        super().__init__()

    def forward(self, x):
        return x


class TooMany(Narrow):
    def forward(self, x, mask, *, keep=None, carry=None):
        return x


class NotCallable(Narrow):
    forward = 3


class Wide(Narrow):
    def forward(self, x, *rest, **more):
        return x


class NoInit(TokenMixer):
    def forward(self, x, *, keep=None, carry=None):
        return x


class WrongInit(NoInit):
    def __init__(self, dim):
        super().__init__()


class Undecorated(Task):
    def num_outputs(self):
        return 1

    def loss(self, outputs, batch):
        raise NotImplementedError

    def sums(self, outputs, batch):
        return {}

    def metrics(self, sums):
        return {}


@pytest.mark.parametrize(
    ("found", "cls", "message"),
    [
        (
            FOUND,
            dict,
            r"dict is not a subclass of subquad\.nn\.TokenMixer or subquad\.nn\.AttentionCore",
        ),
        (FOUND, 3, r"3 is not a subclass of"),
        (TASK, Narrow, r"Narrow is not a subclass of subquad\.nn\.Task"),
        (DATASET, Narrow, r"Narrow is not a subclass of subquad\.data\.Dataset"),
        (FOUND, NoForward, r"NoForward does not implement forward\(x, \*, keep=None, carry=None\)"),
        (
            FOUND,
            Narrow,
            r"Narrow must have forward\(x, \*, keep=None, carry=None\): got an "
            r"unexpected keyword argument 'keep'",
        ),
        (FOUND, TooMany, r"TooMany must have forward\(x, .*: missing a required argument: 'mask'"),
        (FOUND, NotCallable, r"NotCallable must have forward\(x, .*: it is a int"),
        (FOUND, NoInit, r"NoInit has no __init__ of its own, it is built as cls\(config, site\)"),
        (
            FOUND,
            WrongInit,
            r"WrongInit must be built as cls\(config, site\): too many positional arguments",
        ),
        (TASK, Undecorated, r"Undecorated\.num_outputs is a method, not a property"),
        (
            TASK,
            Task,
            r"does not implement loss\(outputs, batch\), metrics\(sums\), the "
            r"property num_outputs, sums\(",
        ),
    ],
)
def test_a_class_that_breaks_the_contract_names_the_method(found, cls, message):
    with pytest.raises(PluginError, match=message):
        check_class(found, cls)


def test_a_class_that_takes_more_than_it_must_is_fine():
    assert check_class(FOUND, Wide) is Wide


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, r"Wide2 has no class attribute Config \(a subquad\.plugin\.MixerConfig\)"),
        (
            {"Config": MixerConfig},
            r"Wide2 has no class attribute facts \(a subquad\.plugin\.Facts\)",
        ),
        (
            {"Config": MixerConfig, "facts": {}},
            r"facts is \{\}: Input should be an instance of Facts",
        ),
        ({"Config": int, "facts": Facts()}, r"config is <class 'int'>, not a subclass"),
        ({"Config": MixerConfig, "facts": Facts(), "api": 9}, r"needs plugin API 9"),
        ({"Config": MixerConfig, "facts": Facts(), "summary": 3}, r"summary is 3"),
        ({"Config": MixerConfig, "facts": Facts(), "variants": 3}, r"variants is 3"),
    ],
)
def test_a_class_given_directly_says_what_it_lacks(attributes, message):
    with pytest.raises(PluginError, match=message):
        check_plugin(FOUND, type("Wide2", (Wide,), attributes))


def test_a_class_without_docstring_has_an_empty_summary():
    plugin = check_plugin(FOUND, type("Wide3", (Wide,), {"Config": MixerConfig, "facts": Facts()}))
    assert plugin.summary == ""


def test_a_class_may_name_variants_for_the_certificate():
    named = {"Config": MixerConfig, "facts": Facts(), "variants": {"plain": {}}}
    assert check_plugin(FOUND, type("Wide4", (Wide,), named)).variants == {"plain": {}}
