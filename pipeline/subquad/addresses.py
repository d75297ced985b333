"""Secrets in addresses and settings: where they are, and the same text without them.

Everything here takes a time that is linear in the text, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"

_SECRET = re.compile(
    r"(?:odbc_connect|sas|accesskey|apikey|authtoken|secretkey)$|"
    r"(?:^|[^a-z0-9])(?:auth|authorization|bearer|credentials?|jwt|key|pass|passcode|passphrase|"
    r"passwd|password|pin|pw|pwd|secrets?|sig|signature|token)[_.\- ]*$"
)
"""How the names of secrets end. `tokens` is none: that is a number of tokens."""
_NO_USERS = ("http", "https", "s3", "gs")
"""Kinds of addresses in which a path may have an `@`, and a user name alone is a secret: a token
often stands there.
"""

_LOCAL = ("sqlite", "file", "driver")
"""Kinds of addresses that name a file of this machine, and no server."""
_AFTER = ":;,.!)]}>'\""
"""What a sentence or a list has behind an address."""
_LONGEST_NAME = 100
_LONGEST_SCHEME = 40
_MOST_ADDRESSES = 10_000
"""In one text; one with more is hidden whole."""


@lru_cache(maxsize=10_000)
def is_secret(name: str) -> bool:
    """Whether the name of a setting or of a part of a query says that a text under it is a secret.

    `api_key`, `githubToken` and `X-Amz-Signature` do, `num_tokens`, `key_dim` and `tokenizer` do
    not.
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
    return _SECRET.search(words) is not None


def mask(text: str) -> str:
    """The text with `***` for user and password, and for secret values of queries, in every address
    that it has, and for the value of a setting such as `params.api_key=VALUE`.

    Where it cannot be told what is a password, more is hidden rather than less.
    """
    if text.count("://") > _MOST_ADDRESSES:
        return HIDDEN
    return re.sub(r"\S+", _masked, text)


def _masked(match: re.Match[str]) -> str:
    word = match[0]
    if "://" in word:
        return _without_users(_without_values(word))
    return without_value(word)


def without_value(setting: str) -> str:
    """`params.api_key=***` of a setting with a dotted key that is called like a secret; another
    text as it is.
    """
    name, equals, value = setting.partition("=")
    # VALUE stands in help and hints
    if equals and value != "VALUE" and "." in name and is_secret(name[-_LONGEST_NAME:]):
        return f"{name}={HIDDEN}"
    return setting


def without_secrets(value: Any, name: str = "") -> Any:
    """A plain value with `***` for each secret in it: a text under a secret's name, and secrets
    of addresses.
    """
    if isinstance(value, str):
        if value and is_secret(name):
            return HIDDEN
        return mask(value)
    if isinstance(value, Mapping):
        return {key: without_secrets(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_secrets(inner, name) for inner in value]
    return value


def has_secret(address: str) -> bool:
    """Whether an address holds a password, a secret value of a query or, in that of a server, a
    user name.
    """
    before, marker, rest = address.partition("://")
    scheme = _scheme_at_the_end(before)
    user = _user_of(scheme, rest)
    is_user = ":" in user or (user and scheme in _NO_USERS)
    return bool(marker and (is_user or _without_values(address) != address))


def _without_values(word: str) -> str:
    """A word with `***` for the secret values of its query."""
    shown = []
    for part in re.split(r"([?&;#])", word):
        name, _, value = part.partition("=")
        if value and is_secret(unquote(name[-_LONGEST_NAME:])):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(part)
    return "".join(shown)


def _without_users(word: str) -> str:
    """A word with `***` for the user and password of each address in it."""
    parts = _apart(word)
    shown = parts[:1]
    for before, piece in pairwise(parts):
        user = _user_of(_scheme_at_the_end(before), piece)
        shown.append(HIDDEN + piece[len(user) :] if user else piece)
    return "://".join(shown)


def _apart(word: str) -> list[str]:
    """What stands before the first `://`, and what follows each.

    A password may have a `://` itself, so an address of a server goes on to the last `@`.
    """
    parts = word.split("://")
    last = word.rpartition("@")[0].count("://")
    for i in range(1, last):
        if _scheme_at_the_end(parts[i - 1]) not in _LOCAL:
            return [*parts[:i], "://".join(parts[i : last + 1]), *parts[last + 1 :]]
    return parts


def _scheme_at_the_end(text: str) -> str:
    """`postgresql` of `"uri=postgresql+psycopg2`."""
    scheme, _, _ = re.split(r"[^A-Za-z0-9+.-]", text[-_LONGEST_SCHEME:])[-1].partition("+")
    return scheme.lower()


def _user_of(scheme: str, piece: str) -> str:
    """What stands before the `@` of a server, password included; "" where there is none.

    A password may have any character that its writer forgot to escape, so it ends at the last `@`
    that is possible.

    Args:
        piece: what follows `://`.
    """
    before = piece.rpartition("@")[0]
    if scheme in _LOCAL or before == HIDDEN:
        return ""
    if before and (scheme not in _NO_USERS or ":" in before):
        return before
    server = re.split(r"[/?#]", piece, maxsplit=1)[0]
    if "@" in server:
        return server.rpartition("@")[0]
    host = server.rpartition("]")[2]  # without the colons of an IPv6 address
    port = host.partition(":")[2].rstrip(_AFTER)
    if port and not port.isdecimal():  # a password that was cut off
        return server
    return ""
