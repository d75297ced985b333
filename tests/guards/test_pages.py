"""Guard: what README and docs tell the reader to type is right.

Commands are parsed by the real command tree, and their settings are resolved against the recipe or
the file that they name. Python runs, YAML is read as what it is. What cannot be checked is marked
in its page: see `pages.py`.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml
from pages import REPO, Block, Command, blocks_of, commands_of, is_synopsis, pages, spans_of

from subquad.cli.main import cli, main
from subquad.cli.tune import is_of_search
from subquad.errors import UserError
from subquad.experiment import load_given, load_study
from subquad.registry import find_plugins, recipes, resolve
from subquad.reports.published import _read as read_published
from subquad.space import find_space
from subquad.space.files import parse_space
from subquad_tools.bench.rows import Protocol, choose_mixer
from subquad_tools.paper.file import open_paper

pytestmark = pytest.mark.skipif(not (REPO / "docs").is_dir(), reason="runs beside the sources only")

SHELL = ("", "bash")

OTHERS = {
    "(umask", ".", "aws", "bash", "cd", "cp", "docker", "eval", "export", "git", "kubectl", "mkdir",
    "pip", "pytest",
    "python", "python3", "ray", "sbatch", "scp", "source", "ssh", "uv",
}  # fmt: skip
"""Programs of others, words of the shell: only files and extras that they name are looked at."""

STAND_IN = """
name: stand-in
dataset: {name: uea, params: {problem: JapaneseVowels}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 128, num_heads: 8}}
mixer: agf
train: {epochs: 2, batch_size: 16}
"""
"""For a reader's own experiment, which no page shows."""

SERIES = {"dataset": {"name": "uea", "params": {"problem": "JapaneseVowels"}}}
PICTURES = {"dataset": {"name": "image-folder", "params": {"path": "pictures"}}}
VIT = {"name": "timm-vit", "params": {"model": "deit_tiny_patch16_224"}}
EACH = {"name": "encoder", "params": {"head": "each"}}
WHOLE = {"task": "classification", "mixer": "softmax", "train": {"steps": 8, "batch_size": 16}}
FRAMES = [
    {**WHOLE, **SERIES, "backbone": "encoder"},
    {**WHOLE, **SERIES, "backbone": "encoder", "task": "regression"},
    {**WHOLE, "dataset": "mqar", "backbone": EACH},
    {**WHOLE, "dataset": "text-lm", "backbone": "decoder", "task": "language-modeling"},
    {
        **WHOLE,
        "dataset": "pubmed-summarization",
        "backbone": "encoder-decoder",
        "task": "summarization",
    },
    {**WHOLE, **PICTURES, "backbone": VIT},
    {**WHOLE, "dataset": "lra-retrieval", "backbone": "dual-encoder"},
]
"""What a part of an experiment file is laid over: it has to fit one of them."""


@cache
def text_of(page: str) -> str:
    return (REPO / page).read_text(encoding="utf-8")


@cache
def blocks(page: str) -> list[Block]:
    return blocks_of(page, text_of(page))


def named_files(own: str) -> dict[str, str]:
    """Files that pages let the reader write, by name; the page's own before those of others."""
    ordered = sorted(pages(), key=lambda page: page == own)
    return {block.name: block.text for page in ordered for block in blocks(page) if block.name}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(place: Path, page: str) -> None:
    for name, text in named_files(page).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text, encoding="utf-8")


def fault_of(command: Command, place: Path, *, synopsis: bool = False, alone: bool = False) -> str:
    """What is wrong with a command; "" where nothing is.

    Args:
        command: of a page.
        place: the folder with the files that its page has.
        synopsis: it stands for several; its words and options are looked at only.
        alone: it may lack arguments, as the name of a command does in running text.
    """
    if command.words[0] != "subquad":
        return _fault_of_others(command.words)
    try:
        if synopsis:
            return _unknown_options(command.words)
        leaf, given = parsed(command.words[1:], alone=alone)
        _resolve(leaf, given, place)
    except click.ClickException as error:
        return error.format_message()
    except UserError as error:
        return str(error)
    return ""


def _fault_of_others(words: Sequence[str]) -> str:
    """Files of the repository and extras that a command of another program names."""
    if words[0] not in OTHERS and not words[0].endswith("/pip"):
        return f"{words[0]}: no program that pages are known to use"
    files = [word for word in words if word.startswith(("benchmarks/", "tests/", ".ci/"))]
    missing = [name for name in files if not (REPO / name.partition("::")[0]).exists()]
    extras = set(metadata("subquad").get_all("Provides-Extra") or ())
    wanted = [word[8:-1].split(",") for word in words if word.startswith("subquad[")]
    missing += [extra for names in wanted for extra in names if extra not in extras]
    return f"{', '.join(missing)}: not there" if missing else ""


def _leaf(words: Sequence[str]) -> tuple[click.Command, list[str], click.Context]:
    """The command that is called, what it is given, and its context."""
    command: click.Command = cli
    context = click.Context(cli, info_name="subquad")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
        context = click.Context(command, info_name=name, parent=context)
    return command, rest, context


def parsed(words: Sequence[str], *, alone: bool) -> tuple[str, dict[str, Any]]:
    """The name of the command, and the values of its arguments and options.

    Values are converted; callbacks do not run.

    Raises:
        click.ClickException: there is no such command, option or value, or an argument is missing.
    """
    command, rest, context = _leaf(words)
    given, left, _ = command.make_parser(context).parse_args(rest)
    if left:
        raise click.UsageError(f"got unexpected {left}")
    for parameter in command.params:
        raw = given.get(str(parameter.name))
        there = isinstance(raw, str | tuple | list | bool) and raw != ()
        if there and isinstance(parameter.type, click.Path):
            continue  # a file of the reader's is not here
        if there:
            parameter.type_cast_value(context, raw)
        elif parameter.required and not alone and "help" not in given:
            raise click.MissingParameter(ctx=context, param=parameter)
    path = context.command_path.removeprefix("subquad").strip()
    kinds = (str, tuple, list)
    return path, {name: value for name, value in given.items() if isinstance(value, kinds)}


def _unknown_options(words: Sequence[str]) -> str:
    """Words of a synopsis that are options of no such command: `subquad list [KIND] [--json]`."""
    plain = [word.strip("[]") for word in words[1:]]
    names = [word for word in plain if word and not word.startswith("--") and word.islower()]
    command, _, _ = _leaf([name.partition("|")[0] for name in names[:2]])
    known = {name for parameter in command.params for name in parameter.opts}
    options = {word.partition("=")[0] for word in plain if word.startswith("-")}
    return f"no option {sorted(options - known)}" if options - known - {"--help"} else ""


def _target(word: str, place: Path) -> str:
    """A recipe, a file of the page, or a stand-in for the reader's own."""
    if word in recipes() or (place / word).is_file():
        return word
    if not word.endswith(".yaml") and not word.isupper():
        return word
    (place / "stand-in.yaml").write_text(STAND_IN, encoding="utf-8")
    return "stand-in.yaml"


def _resolve(leaf: str, given: dict[str, Any], place: Path) -> None:
    """Hold names and settings against what is installed.

    Raises:
        UserError: there is no such plugin, setting or value.
    """
    if target := given.get("target"):
        words = given.get("overrides", ())
        overrides = [text for text in words if not is_of_search(text)]
        study = load_given(_target(target, place), overrides)
        if space := given.get("space"):
            files = [name for name in space.split("+") if name.startswith("./")]
            for run in study.runs if not files else ():
                find_space(space, run)
    if leaf in ("show", "doctor", "list") and (name := given.get("name")) and not name.isupper():
        kind = given["kind"]
        there = recipes(kind) if kind in ("recipe", "space", "published") else _names(kind)
        assert name in there or resolve(kind, name)
    if leaf == "check":
        for word in given.get("words", ()):
            if "=" not in word and word != "MIXER" and not word.isupper():
                choose_mixer(word) if word in _names("mixer") else _own_mixer(word)
    if leaf in ("bench mixers", "bench kernels"):
        for row in given.get("rows", ()):
            choose_mixer(row)
    if leaf == "swap" and not given.get("mixer", "MIXER").isupper():
        known = resolve("mixer", given["mixer"]).plugin.config.model_fields
        keys = [text.partition("=")[0] for text in given.get("settings", ())]
        wrong = [key for key in keys if "." not in key and key not in known]
        if wrong:
            raise click.UsageError(f"{given['mixer']} has no {wrong}")


def _own_mixer(word: str) -> None:
    """A mixer of a file, or of a package that `subquad new` of a page would have written."""
    if word.startswith("./") or f"`subquad new mixer {word}`" not in text_of("docs/plugins.md"):
        resolve("mixer", word)


@cache
def _names(kind: str) -> set[str]:
    return {found.name for found in find_plugins(kind)}  # pyright: ignore[reportArgumentType]


def commands_in(page: str) -> list[Command]:
    checked = [block for block in blocks(page) if block.language in SHELL and not block.reason]
    return [command for block in checked for command in commands_of(block)]


def wrong(faults: dict[str, str]) -> str:
    """A line for each fault."""
    return "".join(f"\n{where}: {fault}" for where, fault in faults.items() if fault)


@pytest.mark.parametrize("page", pages())
def test_commands_are_right(place: Path, page: str) -> None:
    write_files(place, page)
    faults = {str(command): fault_of(command, place) for command in commands_in(page)}
    for span in spans_of(page, text_of(page)):
        short = is_synopsis(" ".join(span.words))
        faults[str(span)] = fault_of(span, place, synopsis=short, alone=True)
    assert wrong(faults) == ""


@pytest.mark.parametrize("page", pages())
def test_refusals_are_said_as_the_page_shows_them(
    place: Path,
    page: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a `console` block a command stands behind its prompt, and what it prints below."""
    write_files(place, page)
    for block in blocks(page):
        if block.language == "console" and not block.reason:
            shown = block.text.rstrip("\n").split("\n$ ")
            for command, text in zip(commands_of(block), shown, strict=True):
                assert main(list(command.words[1:])) == 2
                assert capsys.readouterr().err.strip() == text.partition("\n")[2], str(command)


def python_of(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and not block.reason]


def name_faults(found: Sequence[Block]) -> Iterator[str]:
    """Names in a page's Python that nothing defines; imports and attributes that are not there."""
    text = "\n".join(textwrap.dedent(block.text) for block in found)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "-q", "-"]
    yield subprocess.run(ruff, input=text, capture_output=True, text=True, timeout=60).stdout
    modules: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            try:
                exec(ast.unparse(node), modules)
            except ImportError as error:
                yield str(error)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            base = modules.get(node.value.id)
            if isinstance(base, ModuleType) and not hasattr(base, node.attr):
                yield f"{node.value.id} has no {node.attr}"


def python_faults(found: Sequence[Block]) -> Iterator[str]:
    """Run a page's blocks of Python one after the other, as a reader would."""
    names: dict[str, Any] = {"__name__": "page"}
    for block in found:
        try:
            exec(compile(textwrap.dedent(block.text), str(block), "exec"), names)
        except Exception:
            yield f"{block}: {traceback.format_exc(limit=-1).strip()}"


PYTHON = [page for page in pages() if python_of(page)]
TRAINS = [page for page in PYTHON if "runs/" in text_of(page) or "subquad.t" in text_of(page)]
"""Pages whose Python trains, or needs a run that was trained."""


@pytest.mark.parametrize("page", PYTHON)
def test_names_in_python_exist(place: Path, page: str) -> None:
    write_files(place, page)
    assert "".join(name_faults(python_of(page))) == ""


@pytest.mark.parametrize("page", sorted({*PYTHON} - {*TRAINS}))
def test_python_runs(place: Path, page: str) -> None:
    write_files(place, page)
    assert list(python_faults(python_of(page))) == []


@pytest.mark.extended
@pytest.mark.parametrize("page", TRAINS)
def test_python_that_trains_runs(place: Path, page: str) -> None:
    """Runs that the page names are trained before, for an epoch, and the model is exported."""
    write_files(place, page)
    named = {Path(name) for name in re.findall(r"runs/quickstart/\d{8}-\d{6}-\w+", text_of(page))}
    if named:
        assert main(["train", "quickstart", "--local", "train.epochs=1", "matrix.seed=[0]"]) == 0
        (trained,) = Path("runs/quickstart").iterdir()
        for folder in named:
            shutil.copytree(trained, folder)
            assert (
                main(["export", str(folder / "cells/JapaneseVowels-agf-seed0"), "agf-model"]) == 0
            )
    assert list(python_faults(python_of(page))) == []


def yaml_fault(block: Block, place: Path) -> str:
    """What is wrong with a block of YAML; "" where it can be read as what it is."""
    data = yaml.safe_load(block.text)
    path = place / "block.yaml"
    path.write_text(block.text, encoding="utf-8")
    try:
        if "studies" in data:
            open_paper(str(path))
            return ""
        if "format" in data:
            found = read_published(path, "page")
            return found if isinstance(found, str) else ""
        if "dims" in data:
            parse_space(block.text, "page")
        elif "lengths" in data:
            Protocol.of(str(path))
        elif "extends" in data or WHOLE.keys() <= {*data, *data.get("matrix", ())}:
            load_study(str(path))
        else:
            return _part_fault(block.text, place)
    except UserError as error:
        return str(error)
    return ""


def _part_fault(text: str, place: Path) -> str:
    """Of a part of an experiment file; a key that stands again begins another part."""
    documents = [""]
    for line in text.splitlines(keepends=True):
        key = line.partition(":")[0]
        if line[:1].isalpha() and f"\n{key}:" in f"\n{documents[-1]}":
            documents.append("")
        documents[-1] += line
    return "; ".join(filter(None, (_document_fault(document, place) for document in documents)))


def _document_fault(text: str, place: Path) -> str:
    fault = ""
    for frame in FRAMES:
        laid = {**frame, **yaml.safe_load(text)}
        path = place / "part.yaml"
        path.write_text(yaml.safe_dump(laid), encoding="utf-8")
        try:
            load_study(str(path))
            return ""
        except UserError as error:
            fault = fault if fault and "does not fit" in str(error) else str(error)
    return fault


@pytest.mark.parametrize("page", [page for page in pages() if "```yaml" in text_of(page)])
def test_yaml_is_read_as_what_it_is(place: Path, page: str) -> None:
    write_files(place, page)
    found = [block for block in blocks(page) if block.language == "yaml" and not block.reason]
    faults = {str(block): yaml_fault(block, place) for block in found}
    assert wrong(faults) == ""


PLANTED = {
    "```\nsubquad train quickstart --lokal\n```": "--lokal",
    "```\nsubquad train quickstart trian.lr=1\n```": "trian",
    "```\nsubquad tran quickstart\n```": "tran",
    "```\nsubquad train my.yaml mixer=agff\n```": "agff",
    "```\nsubquad tune quickstart --space optimiser\n```": "optimiser",
    "```\nsubquad bench mixers agf:ordr=5\n```": "ordr",
    "```\npip install 'subquad[visoin]'\n```": "visoin",
    "`subquad list [KIND] [--jsno]`": "--jsno",
    "```python\nimport torch\ntorch.oness(2)\n```": "oness",
    "```python\nnp.arange(3)\n```": "np",
    "```python\nfrom subquad.plugin import Fact\n```": "Fact",
    "```yaml\ndims: {mixer.params.order: {itn: [2, 5]}}\n```": "itn",
    "```yaml\nmixer: {name: agf, params: {ordr: 3}}\n```": "ordr",
}
"""Pages with one fault each, and the word that is found."""


@pytest.mark.parametrize("text", PLANTED)
def test_a_planted_fault_is_found(place: Path, text: str) -> None:
    found = blocks_of("page.md", text)
    shell = [block for block in found if block.language in SHELL]
    commands = [command for block in shell for command in commands_of(block)]
    faults = [fault_of(command, place) for command in commands]
    faults += [fault_of(span, place, synopsis=True) for span in spans_of("page.md", text)]
    faults += name_faults([block for block in found if block.language == "python"])
    faults += [yaml_fault(block, place) for block in found if block.language == "yaml"]
    assert PLANTED[text] in "".join(faults)


def test_every_block_says_what_it_is() -> None:
    """Another language would be checked by nobody; what is printed hides no command."""
    known = {*SHELL, "console", "python", "yaml", "toml", "json", "text"}
    found = [block for page in pages() for block in blocks(page)]
    assert [str(block) for block in found if block.language not in known] == []
    printed = [block for block in found if block.language == "text"]
    lines = [line for block in printed for line in block.text.splitlines()]
    assert [line for line in lines if line.startswith("subquad ")] == []


def test_shell_can_be_parsed(tmp_path: Path) -> None:
    found = [block for page in pages() for block in blocks(page) if block.language in SHELL]
    script = "".join(f"# {block}\n{block.text}" for block in found if not block.reason)
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
