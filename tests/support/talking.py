"""Servers on loopback: one that notes each request, and a Ray dashboard that may say anything."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import struct
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Of RFC 6455, section 1.3."""


class _Server:
    """A server in a thread of this process; `answer(handler)` writes what it says."""

    def __init__(self) -> None:
        self.asked = list[str]()
        answer: Callable[[Any], None] = self.answer
        requests = self.asked

        class Handler(http.server.BaseHTTPRequestHandler):
            def any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                requests.append(f"{self.requestline}\n{self.headers}")
                answer(self)

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, client: None  # who asked may go away
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler: Any) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Sink(_Server):
    """Where nothing may arrive: `asked` has each request with its headers."""

    def answer(self, handler: Any) -> None:
        _say(handler, 404, b"{}")


class Dashboard(_Server):
    """A cluster with a token.

    Attributes:
        answers: what it says instead, by what is asked: `info`, `logs`, `file`, `redirect`.
    """

    def __init__(self) -> None:
        self.answers = dict[str, Any]()
        super().__init__()

    def answer(self, handler: Any) -> None:
        path = urlsplit(handler.path).path
        if not handler.headers.get("Authorization"):
            return _say(handler, 401, b"no")
        if path == "/api/version":
            return _say(handler, 200, b'{"version": "4", "ray_version": "2.60.0"}')
        if target := self.answers.get("redirect"):
            return _say(handler, 302, b"", {"Location": target})
        if path == "/api/v0/logs/file":
            return _say(handler, 200, self.answers.get("file", b""))
        if path.endswith("/tail"):
            return self._tail(handler)
        return _say(handler, 200, self._json(handler, path))

    def _json(self, handler: Any, path: str) -> bytes:
        info = self.answers.get("info") or {}
        if isinstance(info, bytes):
            return info
        job = {
            "type": "SUBMISSION",
            "submission_id": "small-3fa9c1",
            "status": "SUCCEEDED",
            "entrypoint": "python",
            "start_time": 1795533065583,
            "end_time": 1795533065999,
            "metadata": {"subquad": "0", "command": "train"},
            "driver_node_id": "n",
            "driver_exit_code": 0,
        }
        if path.endswith("/logs"):
            return json.dumps({"logs": self.answers.get("logs", "done\n")}).encode()
        if path.endswith("/stop"):
            return b'{"stopped": true}'
        if path.startswith("/api/packages/"):
            return b"{}"
        if path.endswith("/jobs/") and handler.command == "POST":
            return b'{"job_id": "x", "submission_id": "x"}'
        found = {**job, **info}
        return json.dumps([found] if path.endswith("/jobs/") else found).encode()

    def _tail(self, handler: Any) -> None:
        """A WebSocket that says the log in one frame and closes."""
        key = handler.headers["Sec-WebSocket-Key"] + GUID
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        headers = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
        text = self.answers.get("logs", "done\n").encode()
        frame = b"\x81\x7f" + struct.pack(">Q", len(text)) + text
        handler.send_response(101)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(frame + b"\x88\x02\x03\xe8")
        handler.close_connection = True


def _say(handler: Any, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
    handler.send_response(code)
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)
