"""Files and recipes: which one is meant, and what is said where there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from subquad.errors import ConfigError
from subquad.experiment import load_study
from subquad.experiment.strict_yaml import MAX_BYTES


@dataclass(frozen=True)
class FakeRecipe:
    name: str
    distribution: str
    content: str

    @property
    def full_name(self) -> str:
        return f"{self.distribution}:{self.name}"

    def text(self) -> str:
        return self.content


@pytest.fixture
def recipes(base_text):
    made = FakeRecipe("agf-vowels", "dist", base_text)
    return lambda: {
        "agf-vowels": made,
        "agf-other": FakeRecipe("agf-other", "dist", "train: {lrr: 1}"),
    }


def refusal(target, cwd, recipes=dict):
    with pytest.raises(ConfigError) as caught:
        load_study(target, cwd=cwd, recipes=recipes)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_recipe_by_name_or_full_name(tmp_path, recipes):
    plan = load_study("agf-vowels", cwd=tmp_path, recipes=recipes)
    assert (plan.source, plan.name) == ("recipe agf-vowels", "base")
    assert load_study("dist:agf-vowels", cwd=tmp_path, recipes=recipes).runs == plan.runs


def test_an_error_in_a_recipe_names_it_and_its_line(tmp_path, recipes):
    assert refusal("agf-other", tmp_path, recipes).startswith(
        "recipe agf-other:1: train.lrr: unknown key; did you mean 'lr'? (and 4 more)"
    )


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("agf-vowel", "'agf-vowel': no such recipe, and no such file; did you mean 'agf-vowels'?"),
        ("zzzzzz", "'zzzzzz': no such recipe, and no such file; there is agf-vowels, agf-other"),
        (
            "plain",
            "'plain': no such recipe, and no such file; there is agf-vowels, "
            "agf-other; for the file write ./plain",
        ),
        ("exp.yml", "exp.yml: no such file; did you mean exp.yaml?"),
        ("./exq.yaml", "./exq.yaml: no such file; did you mean ./exp.yaml?"),
        ("agf-vowels.yaml", "agf-vowels.yaml: no such file; did you mean the recipe agf-vowels?"),
        ("sub/zzzzzz.yaml", "sub/zzzzzz.yaml: no such file"),
        ("a\x00b.yaml", "a\\x00b.yaml: no such file"),
        ("a\nb.yaml", "a\\nb.yaml: no such file"),
        ("folder.yaml", "folder.yaml: a directory, must be a YAML file"),
        ("/dev/null", "/dev/null: not a regular file"),
    ],
)
def test_what_is_not_there(tmp_path, recipes, target, message):
    (tmp_path / "exp.yaml").write_text("x: 1")
    (tmp_path / "plain").write_text("x: 1")
    (tmp_path / "folder.yaml").mkdir()
    assert refusal(target, tmp_path, recipes) == message


def test_a_very_long_name_keeps_its_message(tmp_path):
    assert refusal("x" * 5000 + ".yaml", tmp_path).endswith("xxx.yaml: no such file")


def test_a_pipe_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert refusal("pipe.yaml", tmp_path) == "pipe.yaml: not a regular file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "f.yaml: is empty; it must say dataset, task, backbone and mixer"),
        (b"# nothing\n", "f.yaml: is empty; it must say dataset, task, backbone and mixer"),
        (b"- a\n", 'f.yaml:1: got ["a"], must be a mapping of settings'),
        (b"hello\n", "f.yaml:1: got 'hello', must be a mapping of settings"),
        (b"a: 1\nb: \xff\n", "f.yaml:2: not UTF-8 text (byte 0xff)"),
        (b"\xff\xfea\x00", "f.yaml: UTF-16 text; save it as UTF-8"),
        (
            b"\x7fELF\x02\x01\x00\x00",
            "f.yaml:1:1: control character U+007F; is this a binary file?",
        ),
        (
            b"a: 1\n" * (MAX_BYTES // 4),
            f"f.yaml: larger than {MAX_BYTES:,} bytes, which no experiment file is",
        ),
    ],
)
def test_files_that_are_no_experiment(tmp_path, content, message):
    (tmp_path / "f.yaml").write_bytes(content)
    assert refusal("f.yaml", tmp_path) == message


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path, base_text):
    (tmp_path / "f.yaml").write_bytes(b"\xef\xbb\xbf" + base_text.replace("\n", "\r\n").encode())
    assert load_study("f.yaml", cwd=tmp_path).name == "base"


@pytest.mark.parametrize(
    ("file", "name"),
    [("my-run.yaml", "my-run"), ("my run (2).yml", "my-run-2"), ("...yaml", "experiment")],
)
def test_the_name_is_the_files_where_it_says_none(tmp_path, base_text, file, name):
    (tmp_path / file).write_text(base_text.replace("name: base\n", "", 1))
    assert load_study(file, cwd=tmp_path).name == name
