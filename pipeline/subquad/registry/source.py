"""A plugin in a single file, `./file.py:Class`: read, hashed and run from its text, so that it
can travel as text.
"""

from __future__ import annotations

import ast
import hashlib
import linecache
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from subquad.errors import PluginError
from subquad.registry.faults import blamed
from subquad.registry.found import Found, Kind
from subquad.suggest import did_you_mean

MAX_BYTES = 1_000_000
_imports: dict[str, dict[str, str]] = {}
"""What `imported_by` has seen, by the sha256 of the plugin's file."""


@dataclass(frozen=True)
class SourceFile:
    """A plugin's file: everything another machine needs to rebuild it.

    Attributes:
        kind: "mixer", "backbone", "task" or "dataset".
        path: as the user wrote it; for messages only.
        attribute: the class in it, or the descriptor.
        sha256: of the file's bytes.
        text: its content.
    """

    kind: Kind
    path: str
    attribute: str
    sha256: str
    text: str = field(repr=False)

    @property
    def found(self) -> Found:
        """The file in the shape of an installed plugin, for messages and records."""
        name = f"{self.path}:{self.attribute}"
        return Found(self.kind, name, "file", f"sha256:{self.sha256[:12]}", name)

    @staticmethod
    def read(kind: Kind, name: str, base: Path | None = None) -> SourceFile:
        """Read `./file.py:Class`.

        Args:
            kind: of the plugin.
            name: path and class.
            base: folder a relative path starts from; the working directory where None.

        Raises:
            PluginError: it cannot be read, or does not look like Python source.
        """
        label = f"{kind} {name!r}"
        path, _, attribute = name.rpartition(":")
        if not attribute.isidentifier():
            raise PluginError(f"{label}: {attribute!r} is not a name, write ./file.py:NAME")
        content = _read(label, (base or Path.cwd()) / path)
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PluginError(
                f"{label}: the file is not UTF-8 ({error.reason} at byte {error.start})"
            ) from None
        return SourceFile(kind, path, attribute, _sha256(content), text)

    def run(self) -> Any:
        """The attribute that the text defines; the file itself is not needed.

        Raises:
            PluginError: the text does not belong to the sha256, running it fails, or the attribute
                is missing.
        """
        if _sha256(self.text.encode("utf-8")) != self.sha256:
            raise PluginError(f"{self.found}: the text was changed, its sha256 is another one")
        module = _module(self)
        try:
            return getattr(module, self.attribute)
        except AttributeError:
            hint = did_you_mean(
                self.attribute, [name for name in vars(module) if not name.startswith("_")]
            )
            raise PluginError(
                f"{self.found}: {self.path} defines no {self.attribute}{hint}"
            ) from None


def imported_by(source: SourceFile) -> dict[str, str]:
    """SHA-256 (hex) of the modules that a plugin's file imports, and those that they import, by
    name, as they were when they were first seen; installed packages and subquad are left out.
    """
    known = _imports.setdefault(source.sha256, {})
    texts = [source.text]
    while texts:
        packages = _packages(texts.pop())
        for name, module in sys.modules.copy().items():
            file = getattr(module, "__file__", None)
            if name in known or file is None or name.partition(".")[0] not in packages:
                continue
            if not _is_installed(name, file):
                with suppress(OSError):
                    content = Path(file).read_bytes()
                    known[name] = _sha256(content)
                    texts.append(content.decode("utf-8", "replace"))
    return known


def _packages(text: str) -> set[str]:
    """First parts of the names of all modules that a text imports."""
    names = set[str]()
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names.update(alias.name.partition(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                names.add((node.module or "").partition(".")[0])
    return names


def _is_installed(name: str, file: str) -> bool:
    places = [sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")]
    return name.startswith("subquad") or any(map(Path(file).is_relative_to, places))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(label: str, path: Path) -> bytes:
    try:
        if not path.is_file():
            problem = "is not a file" if path.exists() else "does not exist"
        elif path.stat().st_size > MAX_BYTES:
            problem = f"has more than {MAX_BYTES} bytes: not a plugin's source"
        else:
            return path.read_bytes()
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    raise PluginError(f"{label}: {path} {problem}")


def _module(source: SourceFile) -> ModuleType:
    """The module of a source text, run once in this process. Its name is unique to the text."""
    name = f"subquad_source_{source.sha256}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = source.path
    # Tracebacks show lines without the file.
    lines = source.text.splitlines(keepends=True)
    linecache.cache[source.path] = (len(source.text), None, lines, source.path)
    # Registered first: pydantic and dataclasses look annotations up in sys.modules while the class
    # is being made.
    sys.modules[name] = module
    try:
        with blamed(f"{source.found} cannot be loaded"):
            text = source.text.removeprefix("\ufeff")
            exec(compile(text, source.path, "exec", dont_inherit=True), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module
