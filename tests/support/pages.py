"""Code blocks and commands of the documentation, as markdown-it reads them.

A block or a paragraph that cannot be checked is marked in its page, in a paragraph before it:
`<!-- not checked: the reason -->`. What a program prints, and layouts of folders, are blocks of the
language `text`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

REPO = Path(__file__).resolve().parents[2]
TEXTS = ["README.md", "CONTRIBUTING.md", "docs/**/*.md"]

_MARK = re.compile(r"<!-- not checked: (\S.*?) -->")
_NAME = re.compile(r"# ([\w./-]+\.(?:py|yaml))$")
_SYNOPSIS = re.compile(r"[\[|]|\.\.\.|\b(KIND|COMMAND)\b")


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        page: its page, relative to the repository.
        line: of its first line of code.
        language: as it is given; "" for commands of a shell.
        text: the code.
        reason: why it is not checked; "" where it is.
    """

    page: str
    line: int
    language: str
    text: str
    reason: str = ""

    @property
    def name(self) -> str:
        """The file that its first line names, as in `# my_mixer.py`; "" where it names none."""
        found = _NAME.match(self.text.partition("\n")[0])
        return found[1] if found else ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A simple command of a page: its words without those that only start it, such as `uv run`."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def pages() -> list[str]:
    """All pages, relative to the repository."""
    found = [path for pattern in TEXTS for path in sorted(REPO.glob(pattern))]
    return [str(path.relative_to(REPO)) for path in found]


def blocks_of(page: str, text: str) -> list[Block]:
    """The code blocks of a page."""
    found = list[Block]()
    reason = ""
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "html_block":
            mark = _MARK.search(token.content)
            reason = mark[1] if mark else ""
        elif token.type == "inline":
            reason = ""
        elif token.type == "fence" and token.map:
            language = token.info.strip()
            found.append(Block(page, token.map[0] + 2, language, token.content, reason))
            reason = ""
    return found


def commands_of(block: Block) -> list[Command]:
    """The simple commands of a block of shell; of a `console`, what stands behind its prompts."""
    found = list[Command]()
    joined = ""
    for number, line in enumerate(block.text.splitlines()):
        if block.language == "console" and not line.startswith("$ ") and not joined:
            continue
        joined += line.removeprefix("$ ") if block.language == "console" else line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        found += [Command(block.page, block.line + number, words) for words in simple(joined)]
        joined = ""
    return found


def simple(line: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of a line of shell.

    Raises:
        ValueError: a quote is not closed.
    """
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
    lexer.whitespace_split = True
    words = list[str]()
    for word in [*lexer, ";"]:
        if word and set(word) <= set("&|;"):
            if started := _started(words):
                yield started
            words = []
        else:
            words.append(word)


def _started(words: list[str]) -> tuple[str, ...]:
    """Without `uv run`, `taskset -c 0`, what starts ranks, settings of the environment, and where
    output goes.
    """
    rest = list(words)
    while rest and re.match(r"[A-Z_]+=", rest[0]):
        rest = rest[1:]
    if rest[:2] == ["uv", "run"]:
        rest = rest[2:]
        while rest and rest[0].startswith("-"):
            rest = rest[2:] if rest[0] in ("--extra", "--group", "--with") else rest[1:]
    if rest[:1] == ["taskset"]:
        rest = rest[3:]
    if rest[:1] in (["torchrun"], ["srun"]) and "subquad" in rest:
        rest = rest[rest.index("subquad") :]
    return tuple(rest[: rest.index(">")] if ">" in rest else rest)


def spans_of(page: str, text: str) -> list[Command]:
    """The commands of subquad in a page's running text and tables: `subquad train quickstart`."""
    found = list[Command]()
    marked = False
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "html_block":
            marked = bool(_MARK.search(token.content))
        if token.type in ("inline", "fence") and marked:
            marked = False
            continue
        for child in token.children or []:
            if child.type == "code_inline" and child.content.startswith("subquad "):
                line = token.map[0] + 1 if token.map else 0
                content = child.content.replace("\\|", "|")
                words = tuple(content.split()) if is_synopsis(content) else next(simple(content))
                found.append(Command(page, line, words))
    return found


def is_synopsis(content: str) -> bool:
    """Whether a command stands for several, as `subquad list [KIND]`; quoted brackets are none."""
    return bool(_SYNOPSIS.search(re.sub(r"'[^']*'|\w+=\S+", "", content)))
