"""A mixer in a single file."""

import dataclasses
import hashlib
import inspect
import linecache

import pytest
import torch

from subquad.errors import PluginError
from subquad.plugin import Site
from subquad.registry import load_source, make_mixer, plugin_facts, resolve
from subquad.registry.source import MAX_BYTES

CODE = """
from __future__ import annotations
import dataclasses
from subquad.nn import TokenMixer
from subquad.plugin import Facts, MixerConfig, param

class Settings(MixerConfig):
    shift: int = param(1, meaning="tokens to shift by")

@dataclasses.dataclass
class Helper:
    value: int = 0

class Mine(TokenMixer):
    "My mixer."
    Config = Settings
    facts = Facts()

    def __init__(self, config: Settings, site):
        super().__init__()
        self.shift = config.shift

    def forward(self, x, *, keep=None, carry=None):
        return x.roll(self.shift, 1)
"""


@pytest.fixture
def write(site, tmp_path):
    def make(text=CODE, name="mine.py"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return make


def test_a_file_is_read_hashed_and_run(write, tmp_path):
    path = write()
    resolved = resolve("mixer", "./mine.py:Mine", base=tmp_path)
    assert resolved.plugin.summary == "My mixer."
    assert resolved.source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (resolved.source.path, resolved.source.attribute, resolved.source.text) == (
        "./mine.py",
        "Mine",
        CODE,
    )
    mixer = make_mixer(resolved, resolved.plugin.config(shift=2), Site(dim=1))
    assert mixer(torch.arange(3.0).reshape(1, 3, 1)).flatten().tolist() == [1.0, 2.0, 0.0]


def test_without_a_base_the_working_directory_counts(write, tmp_path, monkeypatch):
    write()
    monkeypatch.chdir(tmp_path)
    assert resolve("mixer", "mine.py:Mine").found.distribution == "file"


def test_a_worker_rebuilds_it_from_text_alone(write, tmp_path):
    path = write()
    source = resolve("mixer", "./mine.py:Mine", base=tmp_path).source
    path.unlink()
    again = load_source(type(source)(**vars(source)))
    assert again.plugin.summary == "My mixer."
    assert "x.roll(self.shift, 1)" in inspect.getsource(again.plugin.build.forward)


def test_one_text_is_run_once_and_a_changed_one_is_another_module(write, tmp_path):
    write()
    first = resolve("mixer", "./mine.py:Mine", base=tmp_path)
    assert resolve("mixer", "./mine.py:Mine", base=tmp_path).plugin.build is first.plugin.build
    write(CODE.replace("My mixer.", "Another."))
    second = resolve("mixer", "./mine.py:Mine", base=tmp_path)
    assert (first.plugin.summary, second.plugin.summary) == ("My mixer.", "Another.")
    assert first.plugin.build.__module__ == f"subquad_source_{first.source.sha256}"


def test_a_text_that_does_not_match_its_hash_is_refused(write, tmp_path):
    write()
    source = resolve("mixer", "./mine.py:Mine", base=tmp_path).source
    changed = dataclasses.replace(source, text=source.text + "\nEVIL = 1\n")
    with pytest.raises(PluginError, match="the text was changed, its sha256 is another one"):
        load_source(changed)


def test_windows_line_ends_and_a_byte_order_mark_survive_the_journey(write, tmp_path):
    write(b"\xef\xbb\xbf" + CODE.replace("\n", "\r\n").encode())
    resolved = resolve("mixer", "./mine.py:Mine", base=tmp_path)
    assert load_source(resolved.source).plugin.build is resolved.plugin.build


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (CODE, "./absent.py:Mine", r"mixer './absent\.py:Mine': .*absent\.py does not exist"),
        (CODE, "./mine.py:Mime", r"\./mine\.py defines no Mime; did you mean 'Mine'\?"),
        (CODE, "./mine.py:", r"'' is not a name, write \./file\.py:NAME"),
        (CODE, "./mine.py:a b", r"'a b' is not a name, write \./file\.py:NAME"),
        (CODE, "./mine.py:Helper", r"Helper is not a subclass of subquad\.nn\.TokenMixer"),
        (CODE, "./mine.py:Facts", r"Facts is not a subclass of subquad\.nn\.TokenMixer"),
        (b"\xff\xfe", "./mine.py:Mine", r"the file is not UTF-8 \(invalid start byte at byte 0\)"),
        (
            "def broken(:",
            "./mine.py:Mine",
            r"cannot be loaded: SyntaxError: invalid syntax \(mine\.py, line 1\)",
        ),
        (
            "\n1 / 0",
            "./mine.py:Mine",
            r"cannot be loaded: ZeroDivisionError: division by zero \(\./mine\.py:2\)",
        ),
        ("import sys; sys.exit()", "./mine.py:Mine", r"cannot be loaded: it called sys\.exit\(\)"),
        (
            "import helper_beside_it",
            "./mine.py:Mine",
            r"ModuleNotFoundError: No module named 'helper_beside_it'",
        ),
        (
            "a\0b",
            "./mine.py:Mine",
            r"cannot be loaded: (ValueError|SyntaxError): source code string cannot contain null",
        ),
        (
            b"#" * (MAX_BYTES + 1),
            "./mine.py:Mine",
            r"has more than 1000000 bytes: not a plugin's source",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(write, tmp_path, text, name, message):
    write(text)
    for _ in range(2):  # a failed text leaves nothing behind that a second try would find
        with pytest.raises(PluginError, match=message) as caught:
            resolve("mixer", name, base=tmp_path)
        assert "\n" not in str(caught.value)


def test_a_folder_is_not_a_file(site, tmp_path):
    (tmp_path / "mine.py").mkdir()
    with pytest.raises(PluginError, match=r"mine\.py is not a file"):
        resolve("mixer", "./mine.py:Mine", base=tmp_path)


WAVES = """
from subquad.data import Dataset
from subquad.plugin import DatasetConfig

class Waves(Dataset):
    '''Some waves.'''
    Config, inputs, targets = DatasetConfig, "series", ("class",)
    def describe(self): ...
    def load(self, name): ...
"""


def test_a_plugin_of_any_kind_may_be_a_file(write, tmp_path):
    write(WAVES)
    found = resolve("dataset", "./mine.py:Waves", base=tmp_path)
    assert (found.plugin.inputs, found.plugin.targets, found.plugin.summary) == (
        "series",
        ("class",),
        "Some waves.",
    )
    with pytest.raises(
        PluginError, match=r"task '\./mine\.py:Waves'.*Waves is not a subclass of subquad\.nn\.Task"
    ):
        resolve("task", "./mine.py:Waves", base=tmp_path)
    write(WAVES.replace(", inputs", ", output"))
    with pytest.raises(
        PluginError, match=r'Waves has no class attribute inputs \(such as "series"\)'
    ):
        resolve("dataset", "./mine.py:Waves", base=tmp_path)


def test_a_descriptor_in_a_file_must_hold_the_class_itself(write, tmp_path):
    tail = (
        "\nfrom subquad.plugin import MixerPlugin\nPLUGIN = "
        "MixerPlugin(config=Settings, build={}, summary='s')\n"
    )
    write(CODE + tail.format("Mine"))
    assert resolve("mixer", "./mine.py:PLUGIN", base=tmp_path).plugin.summary == "s"
    write(CODE + tail.format("'other:Thing'"))
    with pytest.raises(
        PluginError, match=r"in a file, build must be the class itself, not 'other:Thing'"
    ):
        resolve("mixer", "./mine.py:PLUGIN", base=tmp_path)


def test_the_run_records_the_hash_of_the_file(write, tmp_path):
    path = write()
    facts = plugin_facts(resolve("mixer", "./mine.py:Mine", base=tmp_path))
    assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (facts["source"], facts["distribution"], facts["kind"]) == ("./mine.py", "file", "mixer")


def test_tracebacks_show_the_lines_of_a_file_that_is_not_there(write, tmp_path):
    write().rename(tmp_path / "elsewhere.py")
    source = resolve("mixer", "./elsewhere.py:Mine", base=tmp_path).source
    (tmp_path / "elsewhere.py").unlink()
    load_source(source)
    linecache.checkcache()
    assert linecache.getline("./elsewhere.py", 2) == "from __future__ import annotations\n"
