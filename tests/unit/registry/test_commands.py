"""`subquad list` and `subquad show` in this process; tests/integration runs them as a user does."""

import io
import json
from importlib.metadata import entry_points

import pytest

from subquad.cli.main import main
from subquad.cli.tables import kind_of, print_line, print_table
from subquad.experiment import load_study
from subquad.registry import find_plugins, recipes
from subquad.registry.found import GROUPS

CLASS = """
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, Range, param

class Mine(TokenMixer):
    "My \\x1b[31mown\\x1b[0m mixer."
    class Config(MixerConfig):
        order: int = param(3, meaning="degree", symbol="K", search=Range(1, 8), ge=0, le=32)
        rate: float = param(meaning="step", unit="1/s")

    facts = Facts(causal="always", complexity="L log L")
    paper = "A. Author, 2026"

    def __init__(self, config, site):
        super().__init__()

    def forward(self, x, *, keep=None, carry=None):
        return x
"""


@pytest.fixture
def subquad(site, capfd):
    """Run a command line: exit code, stdout, stderr."""

    def run(*arguments):
        code = main(list(arguments))
        return (code, *capfd.readouterr())

    return run


def cells(text):
    """Lines of a table without the padding."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_show_prints_parameters_facts_and_origin(subquad, tmp_path):
    (tmp_path / "mine.py").write_text(CLASS)
    code, out, err = subquad("show", "mixer", f"{tmp_path}/mine.py:Mine")
    assert (code, err) == (0, "")
    assert "My \\x1b[31mown\\x1b[0m mixer." in out
    assert "\x1b" not in out
    lines = cells(out)
    for line in (
        "distribution this file",
        "paper A. Author, 2026",
        "causal always",
        "padding invariant no",
        "max length any",
        "complexity L log L",
        "name symbol type range default search meaning",
        "order K int >= 0, <= 32 3 1 to 8 degree",
        "rate float required step [1/s]",
    ):
        assert line in lines


def test_show_as_json_holds_the_same(subquad, tmp_path):
    (tmp_path / "mine.py").write_text(CLASS)
    code, out, _ = subquad("show", "mixers", f"{tmp_path}/mine.py:Mine", "--json")
    data = json.loads(out)
    assert code == 0
    assert data["facts"]["causal"] == "always"
    assert [row["name"] for row in data["parameters"]] == ["order", "rate"]
    assert (data["distribution"], data["source"], data["api"]) == ("file", f"{tmp_path}/mine.py", 2)


def test_show_of_a_data_set_prints_what_its_kind_says(subquad, add_dataset):
    add_dataset("toy")
    _, out, _ = subquad("show", "dataset", "toy")
    assert {"targets t", "inputs tokens", "sha256 not recorded"} <= set(cells(out))


def test_a_plugin_without_parameters_says_so(subquad, add_dataset, light):
    add_dataset("toy", light.replace('    size: int = param(4, meaning="number of samples", ge=1)', "    pass"))
    assert "no parameters" in subquad("show", "dataset", "toy")[1]


def test_show_experiment_lists_the_keys(subquad):
    code, out, _ = subquad("show", "experiment")
    assert code == 0
    assert "train.lr float > 0 0.001 peak learning rate" in cells(out)
    names = [row["name"] for row in json.loads(subquad("show", "experiment", "--json")[1])["parameters"]]
    assert {"train.seed", "resources.strategy", "tracking.uri"} <= set(names)


@pytest.fixture
def one_recipe(add):
    text = "# A small one.\nname: small\n" + "#" * 1000 + "\n"
    add("owner", {"subquad.recipes": {"all": "owner_recipes"}}, files={"owner_recipes/small.yaml": text})
    return text


def test_show_recipe_prints_its_text(subquad, one_recipe):
    code, out, _ = subquad("show", "recipe", "small")
    assert code == 0
    assert out.partition("\n")[2] == one_recipe
    assert json.loads(subquad("show", "recipe", "owner:small", "--json")[1])["text"] == one_recipe


def test_list_shows_recipes_with_their_first_comment(subquad, one_recipe):
    assert "recipe small owner 1.0 A small one." in cells(subquad("list", "recipes")[1])
    rows = json.loads(subquad("list", "recipe", "--json")[1])["plugins"]
    assert [row["summary"] for row in rows if row["name"] == "small"] == ["A small one."]


def test_list_of_one_kind_leaves_the_others_out(subquad, add_dataset):
    add_dataset("toy")
    rows = json.loads(subquad("list", "dataset", "--json")[1])["plugins"]
    assert {row["kind"] for row in rows} == {"dataset"}


def test_list_marks_a_recipe_that_two_distributions_offer(subquad, add, one_recipe):
    add("other", {"subquad.recipes": {"all": "other_recipes"}}, files={"other_recipes/small.yaml": "a: 1"})
    out = subquad("list", "recipe")[1]
    assert "† recipe small (owner): write owner:small" in out


def test_list_tells_of_a_recipe_package_that_is_gone(subquad, add):
    add("owner", {"subquad.recipes": {"all": "gone"}})
    code, out, _ = subquad("list")
    assert (code, "† recipe 'all' (owner 1.0): no package gone" in out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("list", "mixr"),
            "no kind 'mixr'; did you mean 'mixer'?; kinds: mixer, backbone, task, dataset, space, recipe",
        ),
        (("show", "experimnt"), "no kind 'experimnt'; did you mean 'experiment'?"),
        (("show", "mixer"), "which mixer? `subquad list mixer` shows what is installed"),
        (("show", "experiment", "train"), "`subquad show experiment` takes no name"),
        (("show", "mixer", "sofmax"), "unknown mixer 'sofmax'; did you mean 'softmax'?"),
        (("show", "recipe", "no-such"), "unknown recipe 'no-such'"),
        (("doctor", "mixr"), "no kind 'mixr'; did you mean 'mixer'?"),
        (("doctor", "--timeout", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(subquad, arguments, says):
    code, out, err = subquad(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


@pytest.mark.parametrize(("word", "kind"), [("mixers", "mixer"), ("task", "task"), ("recipes", "recipe")])
def test_kinds_may_be_written_in_the_plural(word, kind):
    assert kind_of(word) == kind


def test_an_ascii_terminal_gets_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    print_table(("name", ""), [("caf\u00e9", "†")])
    print_line("† note")
    stream.flush()
    assert cells(stream.buffer.getvalue().decode("ascii")) == ["name", "caf\\xe9 \\u2020", "\\u2020 note"]


def test_a_closed_stdout_is_no_error(subquad, monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    assert [main(["list"]), main(["show", "experiment"]), main(["list", "--json"])] == [0, 0, 0]


@pytest.mark.parametrize("group", ["subquad.mixers", "console_scripts"])
def test_entry_points_that_nobody_can_read_are_named_and_no_plugin_is_blamed(subquad, add, monkeypatch, group):
    """torch and pydantic ask for all entry points when they are imported, so nothing works beside them."""
    info = add("latin", {})
    (info / "entry_points.txt").write_bytes(f"[{group}]\nmine = mine:M\n# caf\xe9\n".encode("latin-1"))
    said = f"subquad: {info}/entry_points.txt: not UTF-8 (invalid continuation byte at byte "
    code, out, err = subquad("doctor")
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert len(err.splitlines()) == 1

    def ask(name):
        list(entry_points())

    monkeypatch.setattr("subquad.cli.main.importlib.import_module", ask)
    code, out, err = subquad("train", "quickstart")
    assert (code, out) == (2, "")
    assert err.startswith(said)
    assert len(err.splitlines()) == 1


def test_a_shipped_recipe_does_without_the_short_names_of_plugins(add):
    """Somebody else's plugins have the names of all of ours."""
    ours = [one for one in find_plugins() if one.distribution == "subquad"]
    kinds = ("mixer", "backbone", "task", "dataset")
    add("other", {GROUPS[kind]: {one.name: "other:PLUGIN" for one in ours if one.kind == kind} for kind in kinds})
    shipped = [name for name, one in recipes().items() if one.distribution == "subquad"]
    assert len(shipped) > 20
    for name in shipped:
        for run in load_study(name, ["matrix.seed=[0]"]).runs:
            assert {one.found.distribution for one in run.plugins} == {"subquad"}
    assert {run.label for run in load_study("quickstart", ["matrix.mixer=[agf]", "matrix.seed=[0]"]).runs} == {
        "agf-seed0"
    }
