"""From a name to a plugin that is loaded and checked; whatever a plugin does, it stays its own
affair.
"""

import signal
import sys

import pytest
import torch

from subquad.errors import DataError, Interrupted, PluginError
from subquad.nn import AttentionMixer
from subquad.plugin import Site
from subquad.registry import build_class, make_mixer, resolve

MIXER = """
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param

class Config(MixerConfig):
    width: int = param(3, meaning="window", ge=1)

class Shift(TokenMixer):
    '''Shifts tokens.

    Longer words.
    '''
    Config = Config
    facts = Facts(causal="always")
    paper = "A. Author, 2026"

    def __init__(self, config, site):
        super().__init__()
        {init}

    def forward(self, x, *, keep=None, carry=None):
        return x.roll(1, 1)
"""
CORE = """
from subquad.nn import AttentionCore
from subquad.plugin import AttentionConfig, Facts, MixerConfig, MixerPlugin

class Config({base}):
    order: int = 1

class Core(AttentionCore):
    def __init__(self, config, site):
        super().__init__()

    def forward(self, q, k, v, *, query_keep=None, key_keep=None):
        return v

PLUGIN = MixerPlugin(config=Config, build="fake_core_module:Core", summary="a core")
"""


def test_a_light_descriptor_is_loaded_and_its_class_is_not(add_dataset):
    add_dataset("toy")
    resolved = resolve("dataset", "toy")
    assert (resolved.plugin.summary, resolved.found.distribution, resolved.source) == (
        "a light one",
        "fake-toy",
        None,
    )
    with pytest.raises(
        PluginError,
        match=r"'toy' \(fake-toy 1\.0\) cannot be loaded: ModuleNotFoundError: No module named",
    ):
        build_class(resolved)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "import no_such_module_at_all",
            "ModuleNotFoundError: No module named 'no_such_module_at_all' \\(.*_module.py:1",
        ),
        ("def broken(:", "SyntaxError: invalid syntax \\(fake_bad_module.py, line 1\\)"),
        ("raise RuntimeError('boom\\nbang')", "RuntimeError: boom bang"),
        ("", "AttributeError: module 'fake_bad_module' has no attribute 'PLUGIN'"),
        ("import sys\nsys.exit(3)", "it called sys.exit\\(3\\)"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("class Odd(BaseException): pass\nraise Odd('x')", "Odd: x"),
        ("from subquad.errors import DataError\nraise DataError('no data')", "DataError: no data"),
        ("def again(): again()\nagain()", "RecursionError: maximum recursion depth exceeded"),
    ],
)
def test_whatever_an_import_raises_becomes_one_line(add_dataset, code, reason):
    add_dataset("bad", code, version="0.3")
    add_dataset("good")
    with pytest.raises(
        PluginError, match=rf"^dataset 'bad' \(fake-bad 0\.3\) cannot be loaded: {reason}"
    ) as caught:
        resolve("dataset", "bad")
    assert "\n" not in str(caught.value)
    assert resolve("dataset", "good").plugin.summary == "a light one"


def test_an_entry_point_without_attribute(add):
    add("owner", {"subquad.tasks": {"bare": "just_a_module"}})
    with pytest.raises(PluginError, match=r"'just_a_module' is not of the form module:attribute"):
        resolve("task", "bare")


def test_extras_and_nested_attributes_are_understood(add, light):
    files = {"holder.py": light + "\nclass Box: plugin = PLUGIN\n"}
    add("owner", {"subquad.datasets": {"boxed": "holder:Box.plugin [extra]"}}, files=files)
    assert resolve("dataset", "boxed").plugin.summary == "a light one"


def test_a_real_ctrl_c_during_an_import_goes_through(add_dataset):
    add_dataset(
        "slow",
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10**9): pass",
    )
    # a shell's background job ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            resolve("dataset", "slow")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_stop_that_the_engine_asked_for_goes_through(add_dataset):
    add_dataset("stop", "from subquad.errors import Interrupted\nraise Interrupted(15, 'stopped')")
    with pytest.raises(Interrupted, match="stopped"):
        resolve("dataset", "stop")


def test_a_mixer_class_given_directly_gets_a_descriptor(add_mixer):
    add_mixer("shift", MIXER.format(init=""), "Shift")
    plugin = resolve("mixer", "shift").plugin
    assert (plugin.summary, plugin.paper, plugin.api) == ("Shifts tokens.", "A. Author, 2026", 1)
    assert plugin.facts.causal == "always"
    assert list(plugin.config.model_fields) == ["width"]


def test_a_mixer_is_built(add_mixer):
    add_mixer("shift", MIXER.format(init=""), "Shift")
    resolved = resolve("mixer", "shift")
    mixer = make_mixer(resolved, resolved.plugin.config(), Site(dim=4))
    x = torch.arange(8.0).reshape(1, 2, 4)
    assert torch.equal(mixer(x), x.roll(1, 1))


@pytest.mark.parametrize(
    ("base", "params", "bias"),
    [
        ("AttentionConfig", {"bias": False}, False),
        ("AttentionConfig", {}, True),
        ("MixerConfig", {}, True),
    ],
)
def test_a_core_is_given_its_projections(add_mixer, base, params, bias):
    add_mixer("core", CORE.format(base=base))
    resolved = resolve("mixer", "core")
    mixer = make_mixer(resolved, resolved.plugin.config(**params), Site(dim=4, num_heads=2))
    assert isinstance(mixer, AttentionMixer)
    assert (mixer.query.bias is not None) is bias
    assert mixer(torch.ones(1, 3, 4)).out.shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ("raise ValueError('no way')", "ValueError: no way"),
        ("import torch; torch.nn.Linear(-1, 2)", "RuntimeError: .*fake_shift_module.py:"),
        ("import sys; sys.exit(1)", "it called sys.exit"),
    ],
)
def test_a_constructor_that_raises_names_plugin_and_cause(add_mixer, init, reason):
    add_mixer("shift", MIXER.format(init=init), "Shift")
    resolved = resolve("mixer", "shift")
    with pytest.raises(
        PluginError,
        match=rf"mixer 'shift' \(fake-shift 1\.0\) cannot be built for layer 2: {reason}",
    ):
        make_mixer(resolved, resolved.plugin.config(), Site(dim=4, layer_index=2))


def test_a_constructor_may_raise_an_error_of_subquad(add_mixer):
    init = "from subquad.errors import DataError; raise DataError('as it is')"
    add_mixer("shift", MIXER.format(init=init), "Shift")
    resolved = resolve("mixer", "shift")
    with pytest.raises(DataError, match=r"^as it is$"):
        make_mixer(resolved, resolved.plugin.config(), Site(dim=4))


@pytest.mark.parametrize("kind", ["recipe", "space"])
def test_a_yaml_file_is_no_plugin(kind):
    with pytest.raises(PluginError, match=f"a {kind} is a YAML file, not a plugin"):
        resolve(kind, "any")


def test_a_failed_import_leaves_no_module_behind(add_dataset):
    add_dataset("bad", "raise RuntimeError")
    with pytest.raises(PluginError, match="RuntimeError"):
        resolve("dataset", "bad")
    assert "fake_bad_module" not in sys.modules
