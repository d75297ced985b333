"""What a run records about its plugins, and the comparison with another node."""

import dataclasses
import json

import pytest

from subquad.errors import PluginError
from subquad.plugin import API_VERSION
from subquad.registry import plugin_facts, resolve, verify_same

RECORD = "fake_toy_module.py,sha256=aaa,10\nfake_toy-1.0.dist-info/RECORD,,\n"


@pytest.fixture(autouse=True)
def _node_name(monkeypatch):
    monkeypatch.setattr("platform.node", lambda: "node-7")


def facts_of(name="toy"):
    return plugin_facts(resolve("dataset", name))


def test_distribution_version_and_hash_are_recorded(add_dataset):
    add_dataset("toy", extra={"RECORD": RECORD})
    facts = facts_of()
    assert len(facts.pop("sha256")) == 64
    assert facts == {
        "kind": "dataset",
        "name": "toy",
        "distribution": "fake-toy",
        "version": "1.0",
        "api": API_VERSION,
        "source": None,
        "editable": False,
    }
    json.dumps(facts)


def test_the_hash_follows_the_code_and_not_the_installation(add_dataset):
    info = add_dataset("toy", extra={"RECORD": RECORD})
    first = facts_of()["sha256"]
    rows = [
        *RECORD.splitlines(),
        "../../../bin/tool,sha256=bbb,9",
        "__pycache__/fake_toy_module.cpython-311.pyc,,",
    ]
    (info / "RECORD").write_text("\n".join(reversed(rows)))
    assert facts_of()["sha256"] == first
    (info / "RECORD").write_text(RECORD.replace("aaa", "ccc"))
    assert facts_of()["sha256"] != first


def test_without_record_there_is_no_hash(add_dataset):
    add_dataset("toy")
    assert facts_of()["sha256"] is None


def test_the_same_plugin_passes(add_dataset):
    add_dataset("toy", extra={"RECORD": RECORD})
    verify_same([facts_of()])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"name": "gone"},
            r"^node node-7: dataset 'gone' \(fake-toy 1\.0\) is not installed here$",
        ),
        (
            {"distribution": "other"},
            r"^node node-7: dataset 'toy' \(other 1\.0\) is not installed here$",
        ),
        (
            {"version": "2.0"},
            r"^node node-7: dataset 'toy' \(fake-toy 2\.0\) is here in version 1\.0$",
        ),
        (
            {"sha256": "0" * 64},
            r"^node node-7: dataset 'toy' \(fake-toy 1\.0\) has other files here "
            r"under the same version$",
        ),
    ],
)
def test_a_node_that_differs_is_named_with_what_it_lacks(add_dataset, change, message):
    add_dataset("toy", extra={"RECORD": RECORD})
    with pytest.raises(PluginError, match=message):
        verify_same([{**facts_of(), **change}])


def test_all_differences_are_told_at_once(add_dataset):
    add_dataset("toy")
    expected = [{**facts_of(), "version": "2.0"}, {**facts_of(), "name": "gone"}]
    with pytest.raises(
        PluginError, match=r"is here in version 1\.0; dataset 'gone' .* is not installed here$"
    ):
        verify_same(expected)


def test_a_blocked_plugin_is_told(add_dataset, monkeypatch):
    add_dataset("toy")
    expected = facts_of()
    monkeypatch.setenv("SUBQUAD_PLUGINS", "others")
    with pytest.raises(
        PluginError, match=r"'toy' \(fake-toy 1\.0\) is blocked here: not in SUBQUAD_PLUGINS=others"
    ):
        verify_same([expected])


@pytest.mark.parametrize("origin", ['{"dir_info": {"editable": true}}', "{}", "not json"])
def test_files_of_an_editable_installation_are_not_compared(add_dataset, origin):
    add_dataset("toy", extra={"RECORD": RECORD, "direct_url.json": origin})
    expected = {**facts_of(), "sha256": "0" * 64}
    if "true" in origin:
        assert facts_of()["editable"]
        verify_same([expected])
    else:
        with pytest.raises(PluginError, match="has other files here"):
            verify_same([expected])


def test_nothing_is_imported_to_compare(add_dataset):
    add_dataset("toy", "raise SystemExit")
    verify_same([{"kind": "dataset", "name": "toy", "distribution": "fake_toy", "version": "1.0"}])


def test_a_mixer_in_a_file_is_not_looked_for():
    verify_same(
        [
            {
                "kind": "mixer",
                "name": "./a.py:B",
                "distribution": "file",
                "version": "x",
                "source": "./a.py",
            }
        ]
    )


def test_the_api_that_was_written_for_is_recorded(add_dataset):
    add_dataset("toy")
    resolved = resolve("dataset", "toy")
    other = dataclasses.replace(resolved, plugin=dataclasses.replace(resolved.plugin, api=4))
    assert plugin_facts(other)["api"] == 4
