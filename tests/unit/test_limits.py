"""Downloads, weights and prepared data of somebody else: what is refused before it costs
anything.
"""

import io
import os
import pickle
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import save
from yarl import URL

from subquad.engine.start import _read
from subquad.errors import ConfigError, DataError
from subquad.record import storage
from subquad.security import downloads
from subquad.security.downloads import check_redirect


@pytest.fixture
def server():
    """Addresses of a server: /endless, /more, /away, /file, /good."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.answer()

        def do_GET(self):
            self.answer()

        def answer(self):
            if self.path in ("/away", "/file"):
                self.send_response(302)
                to = (
                    "file:///etc/passwd"
                    if self.path == "/file"
                    else f"http://localhost:{self.server.server_port}/good"
                )
                self.send_header("Location", to)
                return self.end_headers()
            self.send_response(200)
            if self.path in ("/good", "/vast"):
                self.send_header("Content-Length", {"/good": "4", "/vast": str(1 << 50)}[self.path])
            self.end_headers()
            if self.command == "GET":
                pieces = 1 if self.path == "/good" else 100
                for _ in range(pieces):
                    self.wfile.write(b"data" if self.path == "/good" else bytes(1 << 20))

        def log_message(self, *_):
            pass

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def test_downloads_have_a_limit_and_lead_nowhere_else(server, tmp_path, monkeypatch):
    assert storage.fetched(f"{server}/good", tmp_path).read_bytes() == b"data"
    monkeypatch.setattr(downloads, "UNSTATED", 1 << 20)
    for name, message in {
        "endless": "bytes sent, as the server does not state how many there are, or more",
        "vast": "bytes of the disk: 1,125,899,906,842,624",
        "away": "leads to http://localhost:",
        "file": "leads to file:///etc/passwd, which is not followed",
    }.items():
        with pytest.raises(DataError, match=message):
            storage.fetched(f"{server}/{name}", tmp_path)
    assert not list((tmp_path / "fetched").glob("*.part"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("http://1.1.1.1/a", "http://127.0.0.1/b"),
        ("http://1.1.1.1/a", "http://169.254.169.254/latest"),
        ("http://1.1.1.1/a", "http://[::1]/b"),
        ("http://1.1.1.1/a", "http://[::ffff:127.0.0.1]/b"),
        ("http://1.1.1.1/a", "http://10.0.0.1/b"),
        ("http://127.0.0.1:1/a", "http://127.0.0.1:2/a"),
        ("https://1.1.1.1/a", "http://1.1.1.1/a"),
        ("http://1.1.1.1/a", "ftp://1.1.1.1/a"),
    ],
)
def test_redirects_that_are_not_followed(old, new):
    with pytest.raises(DataError, match=r"leads to .*, which is not followed"):
        check_redirect(URL(old), URL(new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("http://10.0.0.1:8/a", "http://10.0.0.1:8/b"),
        ("http://1.1.1.1/a", "https://1.1.1.1/a"),
        ("http://1.1.1.1/a", "http://8.8.8.8/b"),
    ],
)
def test_redirects_that_are_followed(old, new):
    check_redirect(URL(old), URL(new))


class Room:
    """Pickled as a call that makes room for 100 GB."""

    def __reduce__(self):
        return bytearray, (10**11,)


def torch_file(found: object, legacy: bool = False) -> bytes:
    stream = io.BytesIO()
    torch.save(found, stream, _use_new_zipfile_serialization=not legacy)
    return stream.getvalue()


def deflated(content: bytes) -> bytes:
    stream = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content)) as old,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    return stream.getvalue()


def nested_key(depth: int) -> dict:
    key = ()
    for _ in range(depth):
        key = (key,)
    return {key: torch.zeros(1)}


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("a.pth", lambda: deflated(torch_file({"a": torch.zeros(40 << 18)})), "bytes unpacked: 4"),
        (
            "a.pth",
            lambda: torch_file({"a": torch.zeros(1).expand(10**12)}),
            "tensor a has values for which",
        ),
        ("a.pt", lambda: torch_file({"a": Room()}), "makes room for any number of values"),
        (
            "a.pt",
            lambda: torch_file({"a": Room()}, legacy=True),
            "makes room for any number of values",
        ),
        ("a.pt", lambda: torch_file(nested_key(150)), "lists and tuples in one another"),
        (
            "a.pt",
            lambda: torch_file(nested_key(150), legacy=True),
            "lists and tuples in one another",
        ),
        ("a.pt", lambda: pickle.dumps({"a": 1}), "not a file of torch.save"),
        (
            "a.safetensors",
            lambda: (9 << 20).to_bytes(8, "little") + b"{" + b" " * (9 << 20),
            "bytes of the header: 9,437",
        ),
    ],
)
def test_weights_are_judged_before_they_are_loaded(tmp_path, name, make, said):
    (tmp_path / name).write_bytes(make())
    with pytest.raises((ConfigError, DataError), match=said):
        _read(str(tmp_path / name), tmp_path / name)


def test_true_weights_are_read_as_before(tmp_path):
    tensors = {"a": torch.arange(6.0).reshape(2, 3).t(), "b": torch.ones(2, dtype=torch.bfloat16)}
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    kinds = {
        "a.pth": torch_file(tensors),
        "b.pt": torch_file({"model": tensors}, legacy=True),
        "c.safetensors": save(contiguous),
    }
    for name, content in kinds.items():
        (tmp_path / name).write_bytes(content)
        found, _ = _read(name, tmp_path / name)
        assert all(torch.equal(found[key], tensor) for key, tensor in tensors.items())


@pytest.mark.parametrize("fault", ["mode", "file", "group", "link", "owner", "above"])
def test_prepared_data_of_others_are_not_believed(tmp_path, monkeypatch, fault):
    folder = tmp_path / "prepared"
    with storage.building(folder) as part:
        (part / "a").write_bytes(b"1")
    storage.check_own(folder)
    if fault == "mode":
        folder.chmod(0o777)
    elif fault == "file":
        (folder / "a").chmod(0o666)
    elif fault == "group":
        (folder / "a").chmod(0o664)
    elif fault == "link":
        (folder / "b").symlink_to("a")
    elif fault == "above":
        tmp_path.chmod(0o777)
    else:
        os.chown(folder / "a", 12345, -1) if os.getuid() == 0 else monkeypatch.setattr(
            os, "getuid", lambda: 12345
        )
    with pytest.raises(DataError, match="so it is not believed; remove it, or set SUBQUAD_DATA"):
        storage.check_own(folder)
