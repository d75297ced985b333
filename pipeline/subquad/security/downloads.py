"""All that comes over http: where a server may lead to, how much it may send, and for how long.
Imports aiohttp where it is needed.

aiohttp reads no `.netrc` here: whatever listens at an address would get the login of its host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any, BinaryIO
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from fsspec.callbacks import Callback

from subquad.errors import DataError
from subquad.security.limits import ANSWER, DOWNLOAD, UNSTATED, allow


def ask(
    method: str,
    url: str,
    into: BinaryIO,
    *,
    seconds: float,
    headers: dict[str, str],
    allowed: int = ANSWER,
    **sent: Any,
) -> int:
    """Write what a server answers as it comes. It is asked not to pack it, and nothing is unpacked.

    Args:
        into: gets the bytes; empty until then.
        seconds: in which all of it must have come.
        allowed: bytes that it may have.
        sent: `data` or `json`.

    Returns:
        the status. No redirect is followed.

    Raises:
        DataError: there are more bytes.
        TimeoutError: it took longer.
        aiohttp.ClientError: there is no connection, or no http.
    """
    import aiohttp

    async def answer() -> int:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=seconds), auto_decompress=False
            ) as session,
            session.request(
                method,
                url,
                headers={**headers, "Accept-Encoding": ""},
                proxy=proxy_of(url),
                allow_redirects=False,
                **sent,
            ) as found,
        ):
            async for piece in found.content.iter_any():
                into.write(piece)
                allow(url, "bytes of the answer, or more", into.tell(), allowed)
            return found.status

    return asyncio.run(answer())


def proxy_of(url: str) -> str | None:
    """The environment's proxy for an address; none for this machine, as a proxy would look on its
    own.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_loopback(host) or proxy_bypass(host):
        return None
    known = getproxies()
    return known.get(parts.scheme) or known.get("all")


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is that of this machine for itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Counted(Callback):
    """Ends a download that sends more than its server had stated, or than is allowed.

    Args:
        address: of the file.
        size: what the server stated; None where it did not.

    Raises:
        DataError: it states too much.
    """

    def __init__(self, address: str, size: int | None):
        super().__init__()
        allow(address, "bytes to download", size or 0, DOWNLOAD)
        self._address = address
        self._allowed = UNSTATED if size is None else size
        unsaid = ", as the server does not state how many there are" if size is None else ""
        self._what = f"bytes sent{unsaid}, or more"

    def relative_update(self, inc: int = 1) -> None:
        """Called after each piece."""
        super().relative_update(inc)
        allow(self._address, self._what, self.value, self._allowed)


async def client(**options: Any) -> Any:
    """A session that follows a redirect only to the same host, or from one public address to
    another.

    So a server cannot have this machine ask what only this machine can reach. Names are looked at
    as they are resolved, when a connection is made.
    """
    import aiohttp
    from yarl import URL

    given = set[str]()

    class Resolver(aiohttp.ThreadedResolver):
        """The system's, which gives only public addresses of hosts that the user did not name."""

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
        ) -> list[Any]:
            places = await super().resolve(host, port, family)
            if host not in given:
                hidden = [place["host"] for place in places if not _is_public(place["host"])]
                if hidden:
                    raise DataError(f"{host}: is {hidden[0]}, to which no other server may lead")
            return places

    async def start(_: Any, __: Any, request: Any) -> None:
        given.add(request.url.host)

    async def redirect(_: Any, __: Any, answer: Any) -> None:
        headers = answer.response.headers
        check_redirect(answer.url, answer.url.join(URL(headers.get("Location") or headers["URI"])))

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(start)
    trace.on_request_redirect.append(redirect)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=Resolver()), trace_configs=[trace], **options
    )


def check_redirect(old: Any, new: Any) -> None:
    """Refuse a redirect from one address to another, both as `yarl.URL`.

    Raises:
        DataError: to another kind of address, from https to http; or to another host or port,
            unless both are public.
    """
    led = f"{old}: leads to {str(new)[:200]}, which"
    fault = DataError(f"{led} is not followed; give that address itself")
    is_http = new.scheme in ("http", "https") and new.host
    if not is_http or (old.scheme, new.scheme) == ("https", "http"):
        raise fault
    is_upgrade = (old.host, "https", 443) == (new.host, new.scheme, new.port)
    if is_upgrade or (old.host, old.port) == (new.host, new.port):
        return
    try:
        places = [place for url in (old, new) for place in socket.getaddrinfo(url.host, url.port)]
    except OSError as error:
        raise DataError(f"{led} cannot be resolved: {error}") from error
    if not all(_is_public(place[4][0]) for place in places):
        raise fault


def _is_public(address: object) -> bool:
    return ipaddress.ip_address(str(address).partition("%")[0]).is_global
