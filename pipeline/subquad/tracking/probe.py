"""Whether a tracking server is there, asked before MLflow is imported or waits with its own long retries."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from subquad.tracking.address import is_http
from subquad.tracking.secrets import mask

_SECONDS = 2.5  # each to connect and to answer: a dead server costs at most 5 s
_DOWN = (502, 503, 504)


class StoreDown(Exception):
    """A tracking server does not answer."""


def check_server(uri: str) -> None:
    """Ask a server for a sign of life; a database is not asked.

    Raises:
        StoreDown: within 5 s, where there is none.
    """
    if not is_http(uri):
        return
    try:
        urllib.request.urlopen(_health(uri), timeout=_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in _DOWN:
            raise StoreDown(f"{mask(uri)}: answers {error.code}") from error
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", error)
        # A certificate this process does not trust is a sign of life; MLflow's own settings say which ones to trust.
        if not isinstance(cause, ssl.SSLError):
            said = getattr(cause, "strerror", None) or cause
            raise StoreDown(f"{mask(uri)}: no answer ({said})") from error


def _health(uri: str) -> str:
    """The address to ask, without user and password: any answer will do."""
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, path=f"{parts.path.rstrip('/')}/health").geturl()
