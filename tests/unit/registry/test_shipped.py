"""Recipes: YAML files of packages, found without running the packages."""

import sys

import pytest

from subquad.errors import PluginError
from subquad.registry import recipe, recipes
from subquad.registry.shipped import folder_faults, package_folder


@pytest.fixture
def add_recipes(add):
    def make(owner, files, package=None):
        package = package or f"{owner}_recipes.inner"
        folder = package.replace(".", "/")
        code = {f"{package.split('.')[0]}/__init__.py": "raise SystemExit('imported')"}
        texts = {f"{folder}/{name}": text for name, text in files.items()}
        return add(owner, {"subquad.recipes": {"all": package}}, files={**code, **texts})

    return make


def test_recipes_are_found_and_no_code_runs(add_recipes):
    add_recipes("owner", {"small.yaml": "# a small one\nname: small\n", "notes.txt": "no recipe"})
    found = recipes()["small"]
    assert (found.distribution, found.text(), found.summary) == (
        "owner",
        "# a small one\nname: small\n",
        "a small one",
    )
    assert "notes" not in recipes()
    assert "owner_recipes" not in sys.modules


def test_a_recipe_without_comment_has_no_summary(add_recipes):
    add_recipes("owner", {"small.yaml": "name: small\n"})
    assert recipes()["small"].summary == ""


def test_a_clash_is_an_error_on_use_only(add_recipes):
    add_recipes("first", {"same.yaml": "a: 1", "own.yaml": "a: 1"})
    add_recipes("second", {"same.yaml": "a: 2"})
    assert {"first:same", "second:same", "own"} <= set(recipes())
    assert recipe("own").distribution == "first"
    assert recipe("Second:same").text() == "a: 2"
    with pytest.raises(
        PluginError,
        match=r"recipe 'same' is offered by first 1\.0 and second 1\.0: write first:same or",
    ):
        recipe("same")


def test_an_unknown_recipe_says_the_nearest_and_what_is_broken(add_recipes, add):
    add_recipes("owner", {"small.yaml": "a: 1"})
    add("broken", {"subquad.recipes": {"all": "no_such_package.recipes"}})
    with pytest.raises(
        PluginError,
        match=r"unknown recipe 'smal'; did you mean 'small'\?.*no package no_such_package\.recipes",
    ):
        recipe("smal")
    assert folder_faults("recipe") == [
        "recipe 'all' (broken 1.0): no package no_such_package.recipes"
    ]


def test_blocked_distributions_offer_no_recipe(add_recipes, monkeypatch):
    add_recipes("owner", {"small.yaml": "a: 1"})
    monkeypatch.setenv("SUBQUAD_DISABLE_PLUGINS", "1")
    assert "small" not in recipes()


def test_a_recipe_that_is_not_utf8_is_one_line(add_recipes):
    info = add_recipes("owner", {"small.yaml": "a: 1"})
    (info.parent / "owner_recipes/inner/small.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(PluginError, match=r"recipe 'small' \(owner 1\.0\): UnicodeDecodeError"):
        recipe("small").text()


@pytest.mark.parametrize("package", ["no_such_package", "json.nothing", "sys", ".relative", ""])
def test_a_package_that_is_none_has_no_folder(package):
    assert package_folder(package) is None


def test_spaces_are_found_the_same_way(add):
    add(
        "owner",
        {"subquad.spaces": {"all": "owner_spaces"}},
        files={"owner_spaces/wide.yaml": "a: [1, 2]"},
    )
    assert recipes("space")["wide"].text() == "a: [1, 2]"
    assert "wide" not in recipes()
