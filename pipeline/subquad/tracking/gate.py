"""MLflow's server behind a secret of its own start, so that other users of the machine reach
nothing.

MLflow finds this app by its entry point, `mlflow server --app-name subquad`. A browser brings the
secret once, in the address, and then has it in a cookie.
"""

from __future__ import annotations

import hmac
import os
from typing import Any
from urllib.parse import urlencode

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from subquad.tracking.server import COOKIE, OPEN, SECRET, TOKEN
from subquad.tracking.values import Values


def create_app() -> Any:
    """MLflow's application behind the secret, as MLflow asks for it: an ASGI application."""
    from mlflow.server.fastapi_app import app

    # servers ask for a function
    async def application(scope: Values, receive: Any, send: Any) -> None:
        await gated(app, scope, receive, send)

    return application


async def gated(app: Any, scope: Values, receive: Any, send: Any) -> None:
    """Hand on to an application what has the secret, and refuse everything else."""
    if scope["type"] == "lifespan" or scope.get("path") == OPEN:
        await app(scope, receive, send)
        return
    asked = HTTPConnection(scope)
    cookie = asked.cookies.get(COOKIE, "")
    # as MLflow's clients send MLFLOW_TRACKING_TOKEN
    bearer = asked.headers.get("authorization", "").removeprefix("Bearer ")
    if _is_secret(cookie) or _is_secret(bearer):
        await app(scope, receive, send)
        return
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    query = asked.query_params
    response: Response = PlainTextResponse("open the address that `subquad ui` printed", 403)
    if _is_secret(query.get(TOKEN, "")):
        others = [(name, value) for name, value in query.multi_items() if name != TOKEN]
        place = scope["path"]
        if others:
            place += f"?{urlencode(others)}"
        headers = {"location": place, "referrer-policy": "no-referrer"}
        response = Response(status_code=303, headers=headers)
        response.set_cookie(COOKIE, os.environ[SECRET], httponly=True, samesite="strict")
    await response(scope, receive, send)


def _is_secret(given: str) -> bool:
    return hmac.compare_digest(given.encode(), os.environ[SECRET].encode())
