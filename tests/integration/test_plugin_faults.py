"""Faulty third-party plugins, all installed at once, against the commands as a user runs them.

The rows D1-D17 are the project's table of plugin faults. D11 (a mixer whose output is wrong)
belongs to `subquad check` and to the first training step; here it is only shown that such a plugin
harms no command.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(sys.executable).with_name("subquad")

LIGHT = """
from subquad.plugin import Config, DatasetPlugin, param
class Settings(Config):
    size: int = param(4, meaning="samples", ge=1)
PLUGIN = DatasetPlugin(
    config=Settings,
    build="{module}:Data",
    summary="{summary}",
    inputs="tokens",
    targets=("t",){more}
)
"""
DATA = """
from subquad.data import Dataset
class Data(Dataset):
    def describe(self): ...
    def load(self, name): ...
"""
CHANGES = """
import os, random, sys, numpy
print("hello from a plugin")
os.write(1, b"and from below\\n")
random.seed(1); numpy.random.seed(1); os.environ["PLUGIN_WAS_HERE"] = "1"; os.chdir("/")
"""


def good(module, *, summary="fine", more="", data=DATA):
    return data + LIGHT.format(module=module, summary=summary, more=more)


# Row, plugin name, its code, and what doctor says of it; {m} stands for the module's name.
BROKEN = [
    (
        "D1",
        "d01-import-error",
        "import no_such_module",
        "ModuleNotFoundError: No module named 'no_such_module'",
    ),
    ("D2", "d02-syntax-error", "def broken(:", "SyntaxError: invalid syntax"),
    ("D3", "d03-runtime-error", "raise RuntimeError('boom')", "RuntimeError: boom"),
    ("D4", "d04-no-attribute", "", "has no attribute 'PLUGIN'"),
    ("D5", "d05-exit", "import sys; sys.exit(3)", "it called sys.exit(3)"),
    (
        "D6",
        "d06-interrupt",
        "raise KeyboardInterrupt",
        "its import ends the process with exit code 1 (KeyboardInterrupt)",
    ),
    (
        "D7",
        "d07-hard-exit",
        "import os; os._exit(0)",
        "its import ends the process with exit code 0",
    ),
    (
        "D7",
        "d07-segfault",
        "import ctypes; ctypes.string_at(0)",
        "its import ends the process (Segmentation fault)",
    ),
    ("D7", "d07-hang", "import signal; signal.pause()", "its import takes more than 1.5 s"),
    ("D8", "d08-wrong-type", "PLUGIN = {}", "is a dict, not a DatasetPlugin"),
    (
        "D8",
        "d08-abstract",
        good("{m}", data="from subquad.data import Dataset\nclass Data(Dataset): ..."),
        "Data does not implement describe(), load(name)",
    ),
    (
        "D8",
        "d08-signature",
        good("{m}", data=DATA.replace("load(self, name)", "load(self)")),
        "Data must have load(name): too many positional arguments",
    ),
    (
        "D10",
        "d10-newer-api",
        good("{m}", more=", api=2"),
        "needs plugin API 2, this subquad has 1: upgrade subquad",
    ),
    (
        "D10",
        "d10-older-api",
        good("{m}", more=", api=0"),
        "needs plugin API 0, this subquad has 1: upgrade d10-older-api",
    ),
]
SOUND = [
    (
        "D9",
        "twin",
        good("{m}", summary="the first"),
        "is offered by first-owner 1.0 and twin 1.0: write",
    ),
    (
        "D12",
        "d12-changes",
        CHANGES + good("{m}"),
        "changes the environment variable PLUGIN_WAS_HERE when imported",
    ),
    (
        "D12",
        "d12-prints",
        "print('hello')\n" + good("{m}"),
        "prints to stdout when imported: 'hello'",
    ),
    ("D15", "sound", good("{m}"), None),
]
ROWS = [
    pytest.param(name, says, name in {row[1] for row in BROKEN}, id=name)
    for _, name, _, says in BROKEN + SOUND
]


def install(folder, owner, name, code, *, version="1.0", kind="datasets"):
    module = f"{owner.replace('-', '_')}_module"
    info = folder / f"{owner.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[subquad.{kind}]\n{name} = {module}:PLUGIN\n")
    (folder / f"{module}.py").write_text(
        f"open({str(folder / 'imported')!r}, 'a').write({name!r} + ' ')\n"
        + code.replace("{m}", module)
    )


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A site with every fault in it, twice on the path, and a working directory full of traps
    (D16, D17).
    """
    root = tmp_path_factory.mktemp("faults")
    site = root / "site"
    for _, name, code, _ in BROKEN + SOUND:
        install(site, name, name, code)
    install(site, "first-owner", "twin", good("{m}"))
    install(site, "evil", "\x1b[31mred\x1b[2K", good("{m}"))
    (root / "again").symlink_to(site)
    for trap in ("types", "json", "subquad", "typing"):
        (root / f"{trap}.py").write_text("raise SystemExit('shadowed')\n")
    return SimpleNamespace(root=root, site=site, path=f"{site}{os.pathsep}{root / 'again'}")


def environment(world, **more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SUBQUAD_")}
    return {**kept, "PYTHONPATH": world.path, "PYTHONDONTWRITEBYTECODE": "1", **more}


def run(world, *arguments, **more):
    """The console script, started in the folder with the traps."""
    command = [str(SCRIPT), *arguments]
    return subprocess.run(
        command, cwd=world.root, env=environment(world, **more), capture_output=True, text=True
    )


def imported(world):
    log = world.site / "imported"
    return set(log.read_text().split()) if log.exists() else set()


@pytest.fixture(scope="module")
def outputs(world):
    """Every command once, in an order that shows which of them import anything."""
    listed, plain, helped = run(world, "list", "--json"), run(world, "list"), run(world, "--help")
    before = imported(world)
    shown = run(world, "show", "dataset", "sound", "--json")
    after = imported(world)
    doctor = run(world, "doctor", "dataset", "--json", "--timeout", "1.5")
    return SimpleNamespace(
        listed=listed,
        plain=plain,
        helped=helped,
        before=before,
        shown=shown,
        after=after,
        doctor=doctor,
    )


@pytest.mark.parametrize(("name", "says", "broken"), ROWS)
def test_list_shows_it(outputs, name, says, broken):
    rows = [row for row in json.loads(outputs.listed.stdout)["plugins"] if row["name"] == name]
    assert [(row["kind"], row["version"]) for row in rows] == [("dataset", "1.0")] * (
        2 if name == "twin" else 1
    )
    assert f"{name} 1.0" in outputs.plain.stdout
    assert (outputs.listed.returncode, outputs.plain.returncode, outputs.plain.stderr) == (0, 0, "")


@pytest.mark.parametrize(("name", "says", "broken"), ROWS)
def test_doctor_says_what_is_wrong_with_whom(outputs, name, says, broken):
    rows = [
        row for row in json.loads(outputs.doctor.stdout)["plugins"] if row["distribution"] == name
    ]
    assert [row["status"] for row in rows] == ["broken" if broken else "ok"]
    if broken:
        assert rows[0]["reason"].startswith(f"dataset '{name}' ({name} 1.0)")
        assert says in rows[0]["reason"]
    else:
        assert rows[0]["reason"] is None
        assert bool(rows[0]["warnings"]) is bool(says)
        assert any(says in warning for warning in rows[0]["warnings"]) or says is None


def test_list_and_help_import_no_plugin(outputs):
    assert outputs.before == set()
    assert outputs.helped.returncode == 0
    assert "doctor" in outputs.helped.stdout


def test_another_plugin_can_be_shown_and_only_that_one_is_imported(outputs):
    assert outputs.shown.returncode == 0, outputs.shown.stderr
    assert json.loads(outputs.shown.stdout)["parameters"][0]["name"] == "size"
    assert outputs.after == {"sound"}


def test_doctor_fails_where_a_plugin_is_broken(outputs):
    assert outputs.doctor.returncode == 1
    assert outputs.doctor.stderr == ""


def test_everything_an_import_changed_is_named(outputs):
    row = next(
        row for row in json.loads(outputs.doctor.stdout)["plugins"] if row["name"] == "d12-changes"
    )
    *changes, printed = row["warnings"]
    assert changes == [
        "changes Python's random state when imported",
        "changes numpy's random state when imported",
        "changes the environment variable PLUGIN_WAS_HERE when imported",
        "changes the working directory when imported",
    ]
    # Its two lines reach stdout by print and by the file descriptor; which comes first is up to
    # Python's buffer.
    assert printed in {
        f"prints to stdout when imported: {text!r}"
        for text in ("hello from a plugin", "and from below")
    }


def test_escape_sequences_are_neutralised(outputs):
    assert "\x1b" not in outputs.plain.stdout + outputs.doctor.stdout
    assert "\\x1b[31mred\\x1b[2K" in outputs.plain.stdout


def test_a_clash_is_marked(outputs):
    assert "† dataset 'twin' is offered by first-owner 1.0 and twin 1.0" in outputs.plain.stdout
    marked = [line for line in outputs.plain.stdout.splitlines() if " twin †" in line]
    assert len(marked) == 2


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("d05-exit", "dataset 'd05-exit' (d05-exit 1.0) cannot be loaded: it called sys.exit(3)"),
        ("d10-newer-api", "needs plugin API 2, this subquad has 1: upgrade subquad"),
        ("twin", "write first-owner:twin or twin:twin"),
        ("soud", "did you mean 'sound'?"),
    ],
)
def test_showing_a_broken_one_is_one_line(world, name, says):
    done = run(world, "show", "dataset", name, "--json")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert says in done.stderr


def test_json_stays_pure_when_a_plugin_prints(world):
    done = run(world, "show", "dataset", "d12-changes", "--json")
    assert json.loads(done.stdout)["summary"] == "fine"
    assert "and from below" in done.stderr


def test_a_distribution_picks_one_of_two(world):
    done = run(world, "show", "dataset", "twin:twin", "--json")
    assert json.loads(done.stdout)["summary"] == "the first"


def test_all_foreign_plugins_can_be_switched_off(world):
    done = run(world, "doctor", "dataset", "--json", SUBQUAD_DISABLE_PLUGINS="1")
    status = {row["distribution"]: row["status"] for row in json.loads(done.stdout)["plugins"]}
    assert {owner for owner, state in status.items() if state != "blocked"} == {"subquad"}


def test_an_allow_list_blocks_the_rest_and_says_so(world):
    done = run(world, "list", "dataset", SUBQUAD_PLUGINS="sound,twin")
    assert "dataset d05-exit (d05-exit): blocked: not in SUBQUAD_PLUGINS=sound,twin" in done.stdout
    assert "is offered by" not in done.stdout
    assert "(sound)" not in done.stdout


def test_a_node_without_the_plugin_says_so_before_anything_starts(world):
    there = (
        "from subquad.registry import *\nimport "
        "json\nprint(json.dumps([plugin_facts(resolve('dataset', 'sound'))]))"
    )
    here = (
        "import json, sys\nfrom subquad.registry import "
        "verify_same\nverify_same(json.loads(sys.argv[1]))"
    )
    command = [sys.executable, "-P", "-c"]
    facts = subprocess.run(
        [*command, there], env=environment(world), capture_output=True, text=True, check=True
    )
    same = subprocess.run(
        [*command, here, facts.stdout], env=environment(world), capture_output=True, text=True
    )
    assert (same.returncode, same.stderr) == (0, "")
    bare = {key: value for key, value in environment(world).items() if key != "PYTHONPATH"}
    other = subprocess.run([*command, here, facts.stdout], env=bare, capture_output=True, text=True)
    assert "dataset 'sound' (sound 1.0) is not installed here" in other.stderr.splitlines()[-1]


TORCH = """
import torch
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig
torch.manual_seed(3); torch.set_default_dtype(torch.float64)
class PLUGIN(TokenMixer):
    "Seeds torch, and returns half of its input (D11)."
    Config, facts = MixerConfig, Facts()
    def __init__(self, config, site): super().__init__()
    def forward(self, x, *, keep=None, carry=None): return x[:, ::2]
"""


@pytest.mark.parametrize(
    "arguments",
    # The first limit is one that importing torch alone would break. The second takes all kinds.
    [["mixer", "--timeout", "2"], pytest.param(["--timeout", "100"], marks=pytest.mark.extended)],
)
def test_doctor_sees_through_a_plugin_that_imports_torch(tmp_path, arguments):
    """Built-in plugins included."""
    site = tmp_path / "site"
    install(site, "seeder", "seeder", TORCH, kind="mixers")
    world = SimpleNamespace(root=tmp_path, site=site, path=str(site))
    done = run(world, "doctor", "--json", *arguments)
    rows = json.loads(done.stdout)["plugins"]
    assert {row["name"]: row["reason"] for row in rows if row["status"] != "ok"} == {}
    assert {row["name"]: row["warnings"] for row in rows if row["warnings"]} == {
        "seeder": [
            "changes torch's default dtype when imported",
            "changes torch's random state when imported",
        ]
    }
    assert done.returncode == 0
