"""Finding plugins reads metadata only."""

import os
import sys

from subquad.errors import PluginError
from subquad.registry import GROUPS, Found, find_plugins
from subquad.registry.faults import cause
from subquad.registry.found import canonical, metadata_faults


def named(name):
    return [found for found in find_plugins() if found.name == name]


def test_a_plugin_is_found_with_owner_version_and_target(add_dataset):
    add_dataset("toy", version="2.5")
    assert named("toy") == [Found("dataset", "toy", "fake-toy", "2.5", "fake_toy_module:PLUGIN")]


def test_kinds_are_kept_apart(add):
    add(
        "both",
        {
            "subquad.mixers": {"one": "m:A"},
            "subquad.tasks": {"two": "m:B"},
            "other.group": {"three": "m:C"},
        },
    )
    assert "one" in [found.name for found in find_plugins("mixer")]
    assert "one" not in [found.name for found in find_plugins("task")]
    assert named("three") == []


def test_result_is_sorted_by_kind_name_and_distribution(add):
    for owner in ("zeta", "alpha"):
        add(owner, {"subquad.tasks": {"twin": "m:A", "a": "m:A"}, "subquad.mixers": {"z": "m:A"}})
    order = list(GROUPS)
    keys = [(order.index(found.kind), found.name, found.distribution) for found in find_plugins()]
    assert keys == sorted(keys)


def test_a_hundred_plugins_are_found_without_importing_one(add_dataset):
    for number in range(100):
        add_dataset(f"toy{number:03}", code="raise SystemExit('imported')")
    assert sum(found.name.startswith("toy") for found in find_plugins("dataset")) == 100
    assert not [name for name in sys.modules if name.startswith("fake_toy")]


def test_distribution_names_are_canonical(add):
    add("My.Odd__Name", {"subquad.mixers": {"odd": "m:A"}})
    assert named("odd")[0].distribution == "my-odd-name" == canonical("my_odd.NAME")


def test_the_same_distribution_twice_on_the_path_is_listed_once(
    add_dataset, tmp_path, site, monkeypatch
):
    add_dataset("toy", version="2.0")
    second = tmp_path / "second"
    info = second / "fake_toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Fake.Toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[subquad.datasets]\ntoy = elsewhere:PLUGIN\n")
    monkeypatch.setattr(sys, "path", [str(site), str(second), *sys.path])
    assert [found.version for found in named("toy")] == ["2.0"]
    monkeypatch.setattr(sys, "path", [str(second), str(site), *sys.path[2:]])
    assert [found.version for found in named("toy")] == ["1.0"]


def test_a_newer_copy_without_plugins_hides_the_older_one(add, add_dataset, tmp_path, monkeypatch):
    add_dataset("toy")
    first = tmp_path / "first"
    info = first / "fake_toy-3.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake-toy\nVersion: 3.0\n")
    monkeypatch.syspath_prepend(str(first))
    assert named("toy") == []


def test_unreadable_metadata_hide_no_other_plugin_and_are_reported(add, add_dataset, site):
    add_dataset("toy")
    bad = add("bad", {"subquad.mixers": {"hidden": "m:A"}})
    (bad / "entry_points.txt").write_text("[subquad.mixers]\nthis line has no equals sign\n")
    nameless = add("nameless", {"subquad.mixers": {"ghost": "m:A"}})
    (nameless / "METADATA").unlink()
    os.utime(site, ns=(1, 1))
    assert [found.name for found in find_plugins() if found.distribution.startswith("fake")] == [
        "toy"
    ]
    faults = metadata_faults()
    assert any("entry points cannot be read" in fault for fault in faults)
    assert any("nameless-1.0.dist-info: metadata cannot be read" in fault for fault in faults)


def test_an_installation_in_a_running_process_is_noticed(add_dataset, site):
    assert named("toy") == []
    add_dataset("toy")
    os.utime(site, ns=(1, 1))  # two changes within one tick of the file system's clock look alike
    assert len(named("toy")) == 1


def test_control_characters_do_not_reach_messages():
    found = Found("mixer", "\x1b[31mred", "evil\n", "1\u202e0", "m:A")
    why = cause(RuntimeError("\x1b[2J"))
    message = str(PluginError(f"{found}: {why}"))
    named = "mixer '\\x1b[31mred' (evil\\n 1\\u202e0)"
    assert message == f"{named}: RuntimeError: \\x1b[2J"
