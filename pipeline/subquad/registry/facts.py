"""What a run records about the plugins it used, and the proof that another node has the same ones."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from subquad.errors import PluginError
from subquad.registry.found import canonical, find
from subquad.registry.loaded import Resolved
from subquad.registry.selection import blocked
from subquad.registry.text import plain


def plugin_facts(resolved: Resolved) -> dict[str, Any]:
    """Where a plugin came from, for environment.json.

    Returns:
        kind, name, distribution, version, api, source (the path of a mixer in a file, else None), editable, and
        sha256: of the file's bytes, or of the rows of the distribution's RECORD that list its own code and data (rows
        that differ between two installations of one wheel are left out); None where it has no RECORD.
    """
    found, source = resolved.found, resolved.source
    return {
        "kind": found.kind,
        "name": found.name,
        "distribution": found.distribution,
        "version": found.version,
        "api": resolved.plugin.api,
        "source": source.path if source else None,
        **({"editable": False, "sha256": source.sha256} if source else _installed(found.distribution)),
    }


def verify_same(expected: Sequence[Mapping[str, Any]]) -> None:
    """Check on this node that it has the plugins another one recorded with `plugin_facts`. Imports none of them.

    Args:
        expected: one record per plugin; mixers in a file travel as text and are not looked for.

    Raises:
        PluginError: names this node and all that it lacks, or has in another version.
    """
    problems = [problem for one in expected if not one.get("source") for problem in _differences(one)]
    if problems:
        raise PluginError(f"node {plain(platform.node())}: {'; '.join(dict.fromkeys(problems))}")


def _differences(expected: Mapping[str, Any]) -> list[str]:
    owner, version = str(expected["distribution"]), str(expected["version"])
    label = plain(f"{expected['kind']} {expected['name']!r} ({owner} {version})")
    here = [one for one in find(expected["kind"]) if one.name == expected["name"]]
    same = [one for one in here if one.distribution == canonical(owner)]
    if not same:
        return [f"{label} is not installed here"]
    if reason := blocked(owner):
        return [f"{label} is blocked here: {reason}"]
    if same[0].version != version:
        return [f"{label} is here in version {plain(same[0].version)}"]
    installed = _installed(owner)
    if expected.get("editable") or installed["editable"] or not expected.get("sha256"):
        return []  # an editable installation's RECORD does not list its code
    if installed["sha256"] != expected["sha256"]:
        return [f"{label} has other files here under the same version"]
    return []


def _installed(name: str) -> dict[str, Any]:
    try:
        owner = distribution(name)
    except PackageNotFoundError:
        return {"editable": False, "sha256": None}
    return {"editable": _is_editable(owner), "sha256": _record_hash(owner)}


def _is_editable(owner: Distribution) -> bool:
    try:
        origin = json.loads(owner.read_text("direct_url.json") or "{}")
    except ValueError:
        return False
    return bool(origin.get("dir_info", {}).get("editable", False))


def _record_hash(owner: Distribution) -> str | None:
    record = owner.read_text("RECORD")
    if record is None:
        return None
    rows = sorted(row for row in record.splitlines() if _is_own(row.split(",")[0]))
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _is_own(path: str) -> bool:
    """Whether a RECORD row is of the wheel's content: no script or metadata of the installer, no compiled file."""
    return not path.startswith("..") and ".dist-info/" not in path and not path.endswith(".pyc")
