"""Signs of life of a server, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from subquad.experiment.schema import Tracking
from subquad.tracking import address
from subquad.tracking.address import StoreDown, check_server
from subquad.tracking.publisher import open_publisher
from subquad.tracking.sending import Sending
from subquad.tracking.state import Upload, summarise


@contextmanager
def answering(reply: bytes | None) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives one answer, or none; yields its address and what it was asked."""
    requests: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                requests.append(connection.recv(65536))
                if reply is not None:
                    connection.sendall(reply)
                else:
                    connection.recv(1)  # until the other side gives up

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", requests
        thread.join()


def reply(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize(
    "status", ["200 OK", "401 Unauthorized", "404 Not Found", "500 Internal Server Error"]
)
def test_any_answer_is_a_sign_of_life_and_no_password_is_sent(status: str):
    with answering(reply(status)) as (host, requests):
        check_server(f"http://me:hunter2@{host}/prefix/")
    assert requests[0].startswith(b"GET /prefix/health HTTP/1.1\r\n")
    assert b"hunter2" not in requests[0]
    assert b"Authorization" not in requests[0]


def test_a_proxy_that_says_the_server_is_gone_is_believed():
    with (
        answering(reply("503 Service Unavailable")) as (host, _),
        pytest.raises(StoreDown, match=r"^http://\*\*\*@127\.0\.0\.1:\d+: answers 503$"),
    ):
        check_server(f"http://me:hunter2@{host}")


def test_a_server_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(address, "_HEALTH_SECONDS", 0.1)
    with (
        answering(None) as (host, _),
        pytest.raises(StoreDown, match=r": no answer \(timed out\)$"),
    ):
        check_server(f"http://{host}")


def test_a_server_whose_certificate_is_not_trusted_is_there():
    with answering(b"this is no TLS handshake") as (host, _):
        check_server(f"https://{host}")


def test_a_database_is_not_asked():
    check_server("sqlite:////nowhere/x.db")
    check_server("postgresql://u:p@nowhere/x")


def test_a_dead_server_is_reported_without_its_password(run_folder):
    run_folder.train(range(1, 4))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        uri = f"http://me:hunter2@127.0.0.1:{closed.getsockname()[1]}"
        upload = Upload(uri=uri, experiment="demo", folder=run_folder.path)
        error = Sending(upload).look(final=True)
    summary = summarise(upload, error)
    assert error is not None
    assert error.endswith("no answer (Connection refused)")
    assert (summary.delivered, summary.pending, summary.run_ids) == (False, 3, ())
    assert "hunter2" not in f"{error} {summary}"


def test_a_server_that_is_dead_is_told_when_the_run_starts(tmp_path, capsys, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    open_publisher(Tracking(uri=uri), tmp_path, name="any")
    errors = capsys.readouterr().err
    assert errors.startswith(f"MLflow does not answer: {uri}: no answer (")
    assert errors.endswith("; the run goes on, `subquad sync` sends it later\n")
