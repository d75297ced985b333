"""MLflow's server behind a secret of its own start, so that other users of the machine reach
nothing.

MLflow finds this app by its entry point, `mlflow server --app-name subquad`. A browser brings the
secret once, in the address, and then has it in a cookie.
"""

from __future__ import annotations

import hmac
import os
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode

from subquad.tracking.server import COOKIE, OPEN, SECRET, TOKEN
from subquad.tracking.values import Values


def create_app() -> Any:
    """MLflow's application behind the secret, as MLflow asks for it: an ASGI application."""
    from mlflow.server.fastapi_app import app

    async def application(
        scope: Values, receive: Any, send: Any
    ) -> None:  # servers ask for a function
        await gated(app, scope, receive, send)

    return application


async def gated(app: Any, scope: Values, receive: Any, send: Any) -> None:
    """Hand on to an application what has the secret, and refuse everything else."""
    if scope["type"] == "lifespan" or scope.get("path") == OPEN:
        await app(scope, receive, send)
        return
    headers = {
        name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
    }
    query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    cookies = SimpleCookie(headers.get("cookie", ""))
    cookie = cookies[COOKIE].value if COOKIE in cookies else ""
    # as MLflow's clients send MLFLOW_TRACKING_TOKEN
    bearer = headers.get("authorization", "").removeprefix("Bearer ")
    if _is_secret(cookie) or _is_secret(bearer):
        await app(scope, receive, send)
    elif scope["type"] == "http" and _is_secret(dict(query).get(TOKEN, "")):
        rest = urlencode([(name, value) for name, value in query if name != TOKEN])
        place = f"{scope['path']}?{rest}" if rest else scope["path"]
        cookie = f"{COOKIE}={os.environ[SECRET]}; Path=/; HttpOnly; SameSite=Strict"
        await _answer(
            send, 303, {"location": place, "set-cookie": cookie, "referrer-policy": "no-referrer"}
        )
    elif scope["type"] == "http":
        await _answer(send, 403, {}, b"open the address that `subquad ui` printed")
    else:
        await send({"type": "websocket.close", "code": 1008})


def _is_secret(given: str) -> bool:
    return hmac.compare_digest(given.encode(), os.environ[SECRET].encode())


async def _answer(send: Any, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    lines += [(b"content-length", str(len(body)).encode()), (b"content-type", b"text/plain")]
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
