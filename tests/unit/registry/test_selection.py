"""Which plugin a name stands for."""

import pytest

from subquad.errors import PluginError
from subquad.registry import blocked, choose_plugin


def test_a_unique_name(add_dataset):
    add_dataset("toy")
    assert choose_plugin("dataset", "toy").distribution == "fake-toy"


def test_an_unknown_name_says_the_nearest_and_how_to_list(add_dataset):
    add_dataset("toyset")
    with pytest.raises(
        PluginError,
        match=r"unknown dataset 'toyst'; did you mean 'toyset'\? \(`subquad list dataset`",
    ):
        choose_plugin("dataset", "toyst")


def test_a_name_of_another_kind_says_so(add_dataset):
    add_dataset("toyset")
    with pytest.raises(PluginError, match=r"unknown mixer 'toyset'; it is a dataset"):
        choose_plugin("mixer", "toyset")


@pytest.mark.parametrize("name", ["./my.py", "folder/file"])
def test_a_path_without_class_says_how_to_write_it(name):
    with pytest.raises(PluginError, match=r"a mixer in a file is written \./file\.py:Class"):
        choose_plugin("mixer", name)


def test_two_distributions_with_one_name_are_an_error_that_names_both(add_dataset):
    add_dataset("toy", distribution="first", version="1.0")
    add_dataset("toy", distribution="second", version="2.0")
    with pytest.raises(
        PluginError,
        match=r"'toy' is offered by first 1\.0 and second 2\.0: write first:toy or second:toy",
    ):
        choose_plugin("dataset", "toy")
    assert choose_plugin("dataset", "second:toy").version == "2.0"
    assert choose_plugin("dataset", "SECOND:toy").version == "2.0"


def test_a_built_in_name_cannot_be_shadowed(add):
    add("shadow", {"subquad.mixers": {"agf": "shadow:PLUGIN"}})
    with pytest.raises(
        PluginError,
        match=r"'agf' is offered by shadow 1\.0 and subquad .*: write shadow:agf or subquad:agf",
    ):
        choose_plugin("mixer", "agf")
    assert choose_plugin("mixer", "subquad:agf").distribution == "subquad"


def test_one_distribution_that_declares_a_name_twice(add):
    info = add("double", {})
    (info / "entry_points.txt").write_text("[subquad.tasks]\nsame = a:A\nsame = b:B\n")
    with pytest.raises(PluginError, match=r"is declared more than once, as a:A and b:B"):
        choose_plugin("task", "same")


def test_an_unknown_distribution_says_the_nearest(add_dataset):
    add_dataset("toy", distribution="first")
    with pytest.raises(
        PluginError, match=r"unknown dataset 'frist:toy'; did you mean 'first:toy'\?"
    ):
        choose_plugin("dataset", "frist:toy")


def test_disabled_plugins_leave_the_built_in_ones(add_dataset, monkeypatch):
    add_dataset("toy")
    monkeypatch.setenv("SUBQUAD_DISABLE_PLUGINS", "1")
    with pytest.raises(
        PluginError,
        match=r"'toy' \(fake-toy 1\.0\) is blocked by the environment: SUBQUAD_DISABLE_PLUGINS=1",
    ):
        choose_plugin("dataset", "toy")
    assert choose_plugin("mixer", "agf").distribution == "subquad"


def test_the_allow_list_is_compared_in_canonical_form(add_dataset, monkeypatch):
    add_dataset("toy", distribution="My_Toys")
    add_dataset("other")
    monkeypatch.setenv("SUBQUAD_PLUGINS", "my.toys, something")
    assert choose_plugin("dataset", "toy").distribution == "my-toys"
    assert blocked("subquad") is None
    with pytest.raises(
        PluginError,
        match=r"'other' .* blocked by the environment: not in SUBQUAD_PLUGINS=my\.toys, something",
    ):
        choose_plugin("dataset", "other")


def test_blocking_one_of_two_settles_a_clash(add_dataset, monkeypatch):
    add_dataset("toy", distribution="first")
    add_dataset("toy", distribution="second")
    monkeypatch.setenv("SUBQUAD_PLUGINS", "second")
    assert choose_plugin("dataset", "toy").distribution == "second"


@pytest.mark.parametrize("value", ["", "0", "false"])
def test_switch_off(value, monkeypatch):
    monkeypatch.setenv("SUBQUAD_DISABLE_PLUGINS", value)
    assert blocked("anyone") is None


def test_a_switch_that_is_neither_is_refused(monkeypatch):
    monkeypatch.setenv("SUBQUAD_DISABLE_PLUGINS", "perhaps")
    with pytest.raises(PluginError, match=r"SUBQUAD_DISABLE_PLUGINS=perhaps: write 1 or 0"):
        blocked("anyone")
