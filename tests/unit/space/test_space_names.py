"""Spaces by name: merged, installed by other distributions, derived."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from subquad.errors import ConfigError, PluginError
from subquad.experiment import Run
from subquad.registry import find_plugins, recipes
from subquad.registry.shipped import package_folder
from subquad.space import auto_space, check_space, find_space, merge_spaces, parse_space

REPO = Path(__file__).resolve().parents[3]

ORDERS = "mixer: agf\ndims:\n  mixer.params.order: {int: [2, 5]}\n"
RATES = "dims:\n  train.lr: {loguniform: [1e-4, 1e-2]}\n"


def test_the_order_of_names_shows_in_the_name_alone(experiment):
    a, b = parse_space(ORDERS, "a"), parse_space(RATES, "b")
    first, second = merge_spaces([a, b]), merge_spaces([b, a])
    assert (first.name, second.name) == ("a+b", "b+a")
    assert (first.dims, first.constraints) == (second.dims, second.constraints)
    given = experiment()
    assert check_space(first, given).draw(3, 7) == check_space(second, given).draw(3, 7)


def test_equal_definitions_are_one_and_different_ones_name_both_lines():
    a, same = parse_space(RATES, "a"), parse_space("# rates\n" + RATES, "b")
    assert len(merge_spaces([a, same]).dims) == 1
    other = parse_space(RATES.replace("1e-2", "1e-3"), "b")
    with pytest.raises(
        ConfigError,
        match=r"^space b:2: train\.lr: says something else than space a:2 about it; "
        r"leave it out of one of the spaces$",
    ):
        merge_spaces([other, a])


def test_one_setting_of_two_mixers_is_no_conflict(experiment):
    """A study of several mixers takes the space of each."""
    agf, sfpc = (
        parse_space(ORDERS, "agf"),
        parse_space(ORDERS.replace("agf", "sfpc").replace("5", "8"), "sfpc"),
    )
    merged = merge_spaces([agf, sfpc])
    sizes = {
        name: check_space(merged, experiment(name), drop=True).size() for name in ("agf", "sfpc")
    }
    assert sizes == {"agf": 4, "sfpc": 7}
    anybody = parse_space(ORDERS.removeprefix("mixer: agf\n"), "any")
    assert check_space(merge_spaces([agf, anybody]), experiment()).size() == 4
    with pytest.raises(
        ConfigError,
        match=r"^space sfpc:3: mixer\.params\.order: says something else than space any:2",
    ):
        merge_spaces([anybody, sfpc])


def test_spaces_load_nothing_heavy():
    heavy = "[name for name in ('torch', 'ray', 'mlflow') if name in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys, subquad.space; print({heavy})"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("agf+", r"space 'agf\+': a name is missing; write them as in auto\+optimizer"),
        ("auto+auto", r"space auto: given twice; leave one out"),
        ("./gone.yaml", r"\./gone\.yaml: no such file"),
    ],
)
def test_names_that_cannot_be_used(experiment, tmp_path, names, message):
    with pytest.raises(ConfigError, match=f"^{message}$"):
        find_space(names, experiment(), cwd=tmp_path)


def test_two_files_of_one_name_are_two_spaces_and_one_file_is_one(experiment, tmp_path):
    for folder, text in (("one", ORDERS), ("two", RATES)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "agf.yaml").write_text(text)
    given = experiment()
    merged = find_space("./one/agf.yaml+two/agf.yaml", given, cwd=tmp_path)
    assert [dim.path for dim in merged.dims] == ["mixer.params.order", "train.lr"]
    assert merged.dims == find_space("two/agf.yaml+./one/agf.yaml", given, cwd=tmp_path).dims
    with pytest.raises(ConfigError, match=r"^space agf: given twice; leave one out$"):
        find_space("./one/agf.yaml+one/../one/agf.yaml", given, cwd=tmp_path)


def test_a_file_with_a_plus_in_its_name_is_told(experiment, tmp_path):
    (tmp_path / "a+b.yaml").write_text(RATES)
    with pytest.raises(
        ConfigError,
        match=r"^space \./a\+b\.yaml: \+ joins spaces; give the file a name without it$",
    ):
        find_space("./a+b.yaml", experiment(), cwd=tmp_path)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A distribution `third` that offers the files of this repository's spaces and one of its
    own.
    """
    site = tmp_path / "site"
    info = site / "third-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: third\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[subquad.spaces]\nbuiltin = subquad_spaces\nown = third_spaces\n"
    )
    (site / "third_spaces").mkdir()
    (site / "third_spaces" / "rates.yaml").write_text("# Rates.\n" + RATES)
    monkeypatch.syspath_prepend(str(site))
    importlib.invalidate_caches()


@pytest.mark.usefixtures("installed")
def test_spaces_of_an_entry_point_are_merged_by_name(experiment):
    given = experiment()
    space = check_space(find_space("third:agf+rates", given), given)
    assert space.name == "third:agf+rates"
    assert {"mixer.params.order", "train.lr"} <= set(space.draw(0, 0))
    with pytest.raises(PluginError, match=r"unknown space 'rate'; did you mean 'rates'\?"):
        find_space("rate", given)


@pytest.mark.skipif(not (REPO / "pyproject.toml").is_file(), reason="runs beside the sources only")
def test_the_package_offers_its_folder():
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = package_folder(project["entry-points"]["subquad.spaces"]["builtin"])
    assert folder
    assert (folder / "optimizer.yaml").is_file()


@pytest.mark.skipif(
    not any(found.distribution == "subquad" for found in find_plugins("space")),
    reason="installed before there were spaces: install again",
)
def test_the_shipped_spaces_are_installed(experiment):
    assert {"agf", "agf-paper-grid", "cur", "sfpc", "mdfwa", "optimizer"} <= set(recipes("space"))
    given = experiment()
    assert check_space(find_space("agf+optimizer", given), given).dimensions == 9


def searched(given: Run) -> dict[str, str]:
    return {dim.path.removeprefix("mixer.params."): dim.kind for dim in auto_space(given).dims}


def test_a_space_follows_from_the_fields(experiment):
    found = searched(experiment("sfpc", "mixer.params.operator=circulant"))
    assert found["order"] == "choice"
    assert found["decay_length"] == "loguniform"
    assert "boundary" not in found, "a Laplacian's alone"
    assert "jacobi_a" not in found, "needs basis jacobi, which hangs on the Laplacian too"
    assert {"boundary", "jacobi_a"} <= set(searched(experiment("sfpc")))


def test_a_control_has_nothing_to_search_and_takes_the_optimizer(experiment, tmp_path):
    (tmp_path / "rates.yaml").write_text(RATES)
    given = experiment("softmax")
    assert auto_space(given).dims == ()
    assert check_space(find_space("auto+./rates.yaml", given, cwd=tmp_path), given).dimensions == 1
    with pytest.raises(
        ConfigError, match=re.escape("space auto: nothing of it can be searched in this experiment")
    ):
        check_space(find_space("auto", given), given)
