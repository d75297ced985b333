"""What `subquad submit` sends, and what it refuses before it sends anything."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from small_run import SMALL
from wheels import MEAN, wheel

from subquad.cli import job as job_module
from subquad.cli.main import main
from subquad.errors import UserError
from subquad.experiment import load_study
from subquad.ray.upload import JOB, add_wheels, check_packages, pack
from subquad.record.files import write_file
from subquad.record.models import Owner
from subquad.record.trust import trust_folder

TOKEN = "t0ken" * 8


class Cluster:
    """Takes jobs and does nothing with them."""

    address = "http://cluster"

    def __init__(self, folder: Path):
        self.folder, self.words = folder, list[str]()

    def submit(self, archive, words, job, metadata, labels):
        self.words, self.metadata, self.labels = words, metadata, labels
        self.size = archive.stat().st_size
        shutil.rmtree(self.folder, ignore_errors=True)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(self.folder)

    @property
    def files(self) -> list[str]:
        return sorted(
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        )


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Iterator[Cluster]:
    """The working directory has small.yaml. Modules of what is sent are forgotten afterwards."""
    found = Cluster(tmp_path / "unpacked")
    monkeypatch.setattr("subquad.cli.submit._connect", lambda address, insecure: found)
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(SMALL)
    before, path = set(sys.modules), list(sys.path)
    yield found
    assert sys.path == path
    for name in set(sys.modules) - before:
        if name.startswith(("sent_", "subquad_source_")):
            del sys.modules[name]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    assert main(["submit", *arguments]) == code
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    return errors


def test_a_job_brings_the_wheel_the_file_and_the_experiment_and_nothing_else(
    cluster, tmp_path, capsys
):
    for secret in (".git/config", ".env", "data/train.npy", "runs/small/metrics.jsonl"):
        (tmp_path / secret).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / secret).write_text("canary")
    Path("mine.py").write_text(MEAN)
    study = (
        "matrix={mixer: [sent-mean, {name: ./mine.py:Mean, label: mine}], dataset: "
        "[recall], seed: [0]}"
    )
    given = [
        "small.yaml",
        study,
        "train.lr=0.5",
        "--plugin",
        str(wheel(tmp_path)),
        "--root",
        "/data/sq",
        "--detach",
    ]
    assert main(["submit", "train", *given]) == 0
    output = capsys.readouterr().out
    assert (
        f"uploads {cluster.size / 1e6:.1f} MB to http://cluster: sent-mean 1.0, experiment.yaml, "
        "mine.py\n" in output
    )
    kinds = {name.split("/")[0].split("-")[0] for name in cluster.files}
    assert kinds == {"subquad", "sent_mean.py", "sent_mean"}
    assert all(name.startswith(JOB) for name in cluster.files if name.startswith("subquad"))
    assert not [name for name in cluster.files if name.endswith((".pyc", "direct_url.json"))]
    assert {name for name in cluster.files if "sent" in name and "/" in name} == {
        f"sent_mean-1.0.dist-info/{base}"
        for base in ("METADATA", "RECORD", "WHEEL", "entry_points.txt")
    }
    job = cluster.words[2]
    assert cluster.words[:2] == ["submit", "_job"]
    assert cluster.words[3:5] == ["/data/sq", version("subquad")]
    assert cluster.words[5:7] == ["train", f"jobs/{job}/experiment.yaml"]
    assert f"subquad submit logs {job} -f" in output
    shutil.rmtree(tmp_path / "runs")
    Path("mine.py").unlink()
    sys.path.insert(0, str(cluster.folder))
    try:
        trust_folder(cluster.folder, always=False)
        found = load_study(
            str(cluster.folder / JOB / "experiment.yaml"), cwd=tmp_path / "elsewhere"
        )
    finally:
        del sys.path[0]
    assert [run.label for run in found.runs] == ["sent-mean-recall-seed0", "mine-recall-seed0"]
    assert {run.experiment.train.lr for run in found.runs} == {0.5}
    assert main(["submit", "train", "small.yaml", "--detach", "--json"]) == 0
    printed = capsys.readouterr()
    assert "uploads" in printed.err
    assert json.loads(printed.out) == {"job": cluster.words[2]}


def test_a_job_starts_on_a_node_with_the_label(cluster, capsys):
    train = ["submit", "train", "quickstart", "--detach"]
    assert main(train) == 0
    assert cluster.labels == {}
    assert main([*train, "--driver-label", "role=driver"]) == 0
    assert cluster.labels == {"role": "driver"}
    assert main([*train, "--driver-label", "role"]) == 2
    assert "'role': KEY=VALUE" in capsys.readouterr().err


def test_a_search_is_sent_with_its_options_and_files(cluster, capsys):
    Path("mine.yaml").write_text("mixer: agf\ndims: {mixer.params.order: {int: [1, 3]}}\n")
    Path("points.yaml").write_text("[{train.lr: 1e-3}]\n")
    options = (
        "--space mine.yaml+optimizer --sampler tpe --budget 3-trials --points "
        "points.yaml sampler.seed=4 --detach"
    )
    assert (
        main(
            [
                "submit",
                "tune",
                "small.yaml",
                "pruner.reduction_factor=2",
                "train.lr=0.5",
                *options.split(),
            ]
        )
        == 0
    )
    job, words = cluster.words[2], cluster.words[5:]
    own = ["pruner.reduction_factor=2", "sampler.seed=4"]
    assert words[:4] == ["tune", f"jobs/{job}/experiment.yaml", *own]
    given = dict(zip(words[4::2], words[5::2], strict=False))
    space, points = given["--space"].removesuffix("+optimizer"), given["--points"]
    for path, name in ((space, "mine.yaml"), (points, "points.yaml")):
        sent = cluster.folder / JOB / path.removeprefix(f"jobs/{job}/")
        assert sent.read_text() == Path(name).read_text()
    assert (given["--sampler"], given["--budget"]) == ("tpe", "3-trials")
    assert "lr: 0.5" in (cluster.folder / JOB / "experiment.yaml").read_text()
    assert main(["submit", "resume", "runs/small/20260101-000000-aa", "--detach"]) == 0
    assert cluster.words[5:7] == ["resume", "runs/small/20260101-000000-aa"]
    capsys.readouterr()
    assert "space 'nosuch'" in refused(["tune", "small.yaml", "--space", "nosuch"], capsys)


def test_a_mistake_is_told_before_anything_is_sent(cluster, tmp_path, capsys):
    assert "unknown mixer 'sent-mean'" in refused(
        ["train", "small.yaml", "mixer=sent-mean"], capsys
    )
    assert "unknown key" in refused(["train", "small.yaml", "train.lrr=1"], capsys)
    (tmp_path / "a").mkdir()
    same = [
        str(wheel(tmp_path)),
        str(wheel(tmp_path / "a", "other", {"sent-mean": "other:X"}, {"other.py": ""})),
    ]
    both = ["train", "small.yaml", "--plugin", same[0], "--plugin", same[1]]
    assert (
        "mixer 'sent-mean' is offered by other 1.0 and sent-mean 1.0: send one of them"
        in refused(both, capsys)
    )
    assert "another wheel that is sent has a file" in refused(
        [*both[:4], "--plugin", same[0]], capsys
    )
    here = f"here is Python {sys.version_info.major}.{sys.version_info.minor}"
    for tag, python, message in (
        ("cp39-cp39-manylinux_2_17_x86_64", ">=3.9", "sent-mean 1.0: is a wheel for cp39-cp39-"),
        ("cp311-cp311-win_amd64", ">=3.9", "is a wheel for cp311-cp311-win_amd64"),
        ("py3-none-any", "<3.9", "sent-mean 1.0: needs Python <3.9"),
    ):
        found = refused(
            ["train", "small.yaml", "--plugin", str(wheel(tmp_path, tag=tag, python=python))],
            capsys,
        )
        assert message in found
        assert here in found
    assert "--root runs: must be a whole path" in refused(
        ["train", "small.yaml", "--root", "runs"], capsys
    )
    Path("no.whl").write_bytes(b"PK")
    for name, message in (
        ("no.whl", "not a wheel"),
        ("gone.whl", "no such file"),
        ("nobody", "no such file"),
    ):
        assert message in refused(["train", "small.yaml", "--plugin", name], capsys)
    assert cluster.words == []


def test_a_secret_in_a_setting_is_not_sent(cluster, capsys):
    Path("mine.py").write_text(MEAN.replace("pass", "hub_token: str = ''"))
    for key, value in (
        ("tracking.uri", "https://me:CANARY@mlflow.example"),
        ("tracking.uri", "https://mlflow.example/?token=CANARY"),
        ("mixer.params.hub_token", "CANARY"),
    ):
        errors = refused(["train", "small.yaml", "mixer=./mine.py:Mean", f"{key}={value}"], capsys)
        assert f"{key}: holds a secret" in errors or "MLFLOW_TRACKING_PASSWORD" in errors
        assert "CANARY" not in errors
        assert cluster.words == []
    assert main(["submit", "train", "small.yaml", "mixer=./mine.py:Mean", "--detach"]) == 0


def test_the_same_files_make_the_same_archive(tmp_path):
    add_wheels([str(wheel(tmp_path))], tmp_path / "sent")
    assert check_packages(tmp_path / "sent") == ["sent-mean 1.0"]
    first = pack(tmp_path / "sent", tmp_path / "1.zip")
    os.utime(tmp_path / "sent" / "sent_mean.py", (1, 1))
    assert pack(tmp_path / "sent", tmp_path / "2.zip") == first
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()


@pytest.mark.skipif(os.getuid() != 0, reason="starts a program of another user")
def test_the_token_is_not_given_to_another_users_listener(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    code = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.headers.get("Authorization"), flush=True)
        self.send_response(401)
        self.end_headers()
    def log_message(self, *given):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""
    command = [
        shutil.which("python3", path="/usr/bin:/usr/local/bin") or "/usr/bin/python3",
        "-c",
        code,
    ]
    with subprocess.Popen(
        command, user=65534, stdout=subprocess.PIPE, text=True, cwd="/", env={}
    ) as stranger:
        try:
            address = f"http://127.0.0.1:{stranger.stdout.readline().strip()}"
            monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
            with pytest.raises(
                UserError, match="user 65534 listens there, not you, and would get the token"
            ):
                jobs._credentials(address, insecure=False)
        finally:
            stranger.kill()
        assert TOKEN not in stranger.stdout.read()


@pytest.fixture
def dashboard() -> Iterator[SimpleNamespace]:
    """Answers as Ray's dashboard does; `wants` is its token, None where it asks for none."""
    state = SimpleNamespace(wants=TOKEN, text='{"ray_version": "2.60.0"}', asked=[])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            given = self.headers.get("Authorization")
            state.asked.append(given)
            code = (
                200
                if state.wants is None or given == f"Bearer {state.wants}"
                else 403
                if given
                else 401
            )
            self.send_response(code)
            self.end_headers()
            self.wfile.write(state.text.encode() if code == 200 else b"no")

        def log_message(self, format, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()


def test_an_address_is_used_only_where_that_is_safe(dashboard, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    def problem(address, insecure=False):
        with pytest.raises(UserError) as error:
            jobs._credentials(address, insecure)
        assert TOKEN not in str(error.value)
        return str(error.value)

    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "asks for a token: set RAY_AUTH_TOKEN" in problem(dashboard.url)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    assert "refuses the token" in problem(dashboard.url)
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert jobs._credentials(dashboard.url, insecure=False) == headers
    monkeypatch.setattr(jobs, "is_loopback", lambda host: False)
    before = len(dashboard.asked)
    assert "the token would go over the network in clear" in problem(dashboard.url)
    assert dashboard.asked[before:] == [None]
    assert jobs._credentials(dashboard.url, insecure=True) == headers
    dashboard.wants = None
    assert "asks for no token: whoever reaches it can run code there" in problem(dashboard.url)
    assert jobs._credentials(dashboard.url, insecure=True) == {}
    dashboard.text = "<html>"
    assert "is no Ray dashboard" in problem(dashboard.url)
    for address in ("127.0.0.1:8265", "ray://h:10001", "http://", "http://me:secret@h"):
        assert "--address: write the dashboard's address" in problem(address)


def test_a_dead_or_silent_address_costs_seconds(monkeypatch):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    monkeypatch.setattr(jobs, "_PROBE_SECONDS", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match="no connection; is the cluster up"):
            jobs._credentials(url, insecure=False)
        silent.listen()
        with pytest.raises(UserError, match=r"no answer within 0\.2 s"):
            jobs._credentials(url, insecure=False)


ENDLESS = itertools.repeat(b"[" * 2**16)
DRIP = itertools.repeat(b" ")


class Flood(http.server.BaseHTTPRequestHandler):
    """Answers `/api/version` as Ray does, and all else with what the server has as `flood`."""

    def do_GET(self):
        with contextlib.suppress(OSError):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            known = self.path.endswith("/version") and self.server.flood_of != "/version"
            if known and not self.headers.get("Authorization"):
                self.send_error(401)
                return
            self.send_response(200)
            for name, value in self.server.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in [b'{"ray_version": "2"}'] if known else self.server.flood:
                self.wfile.write(piece)
                if self.server.over.wait(0.01 if len(piece) == 1 else 0):
                    return

    do_POST = do_PUT = do_GET

    def log_message(self, format, *args):
        pass


@pytest.fixture
def flooding(monkeypatch) -> Iterator[http.server.ThreadingHTTPServer]:
    """A head node that says what it likes, and a user who has its token."""
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Flood) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        server.flood_of, server.flood, server.headers = "", ENDLESS, {}
        server.over = threading.Event()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.over.set()
        server.shutdown()


CALLS = {
    "info": lambda jobs, into: jobs.info("a"),
    "all": lambda jobs, into: jobs.all(),
    "logs": lambda jobs, into: jobs.logs("a"),
    "follow": lambda jobs, into: jobs.follow("a", print),
    "stop": lambda jobs, into: jobs.stop("a"),
    "submit": lambda jobs, into: jobs.submit(into / "job.zip", [], "a", {}, {}),
}


@pytest.mark.parametrize("call", CALLS)
def test_no_answer_of_a_head_node_is_taken_without_end(call, flooding, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    (tmp_path / "job.zip").write_bytes(bytes(2**21))
    asked = jobs.Jobs(flooding.url)
    with pytest.raises(UserError, match=r"bytes of the answer, or more: .* at most 33,554,432 are"):
        CALLS[call](asked, tmp_path)
    monkeypatch.setattr(jobs, "_ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(jobs, "_SLOWEST", 1e9)
    flooding.flood = DRIP
    with pytest.raises(UserError, match="no answer any more"):
        CALLS[call](asked, tmp_path)


@pytest.mark.parametrize("call", ["info", "all", "logs", "stop"])
@pytest.mark.parametrize(
    "said", [b'{"logs": NaN}', b"[" * 10_000, b"3", b"[3]", b"\xff"], ids=range(5)
)
def test_what_is_no_answer_of_rays_is_told(call, said, flooding, tmp_path):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    flooding.flood = [said]
    with pytest.raises(UserError, match="answers with what is no answer of Ray's"):
        CALLS[call](jobs.Jobs(flooding.url), tmp_path)


def test_the_first_answer_of_a_stranger_is_neither_unpacked_nor_waited_for(flooding, monkeypatch):
    pytest.importorskip("ray")
    from subquad.errors import UserError
    from subquad.ray import jobs

    flooding.flood_of = "/version"
    with pytest.raises(UserError, match="at most 33,554,432 are read"):
        jobs.Jobs(flooding.url)
    packed = zlib.compressobj(9, wbits=31)
    flooding.headers = {"Content-Encoding": "gzip"}
    flooding.flood = [packed.compress(bytes(2**20)) for _ in range(500)] + [packed.flush()]
    tracemalloc.start()
    with pytest.raises(UserError, match="is no Ray dashboard"):
        jobs.Jobs(flooding.url)
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()
    monkeypatch.setattr(jobs, "_PROBE_SECONDS", 0.3)
    flooding.flood = DRIP
    with pytest.raises(UserError, match=r"no answer within 0\.3 s"):
        jobs.Jobs(flooding.url)


def test_a_netrc_is_not_read_and_does_not_replace_the_token(dashboard, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    from subquad.ray import jobs

    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login me password CANARY\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    jobs.Jobs(dashboard.url)
    assert dashboard.asked == [None, f"Bearer {TOKEN}"]


def test_a_proxy_of_the_environment_is_asked_but_for_this_machine(dashboard, monkeypatch):
    pytest.importorskip("ray")
    from subquad.ray import jobs

    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    monkeypatch.setenv("http_proxy", dashboard.url)
    monkeypatch.setenv("no_proxy", "")
    jobs.Jobs("http://cluster.invalid:8265", insecure=True)
    assert dashboard.asked == [None, f"Bearer {TOKEN}"]
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    jobs.Jobs(dashboard.url)


def test_without_an_address_there_is_no_job(monkeypatch, capsys):
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert "--address: none given" in refused(["status"], capsys)


HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2Jline\r\x9b31m\u202etext\n"


class Hostile(Cluster):
    """A cluster whose jobs say what steers terminals, and whose hints name commands of its own."""

    stopped = "subquad: stopped by SIGTERM\x1b[2J after saving step 3; go on with: "

    def logs(self, job):
        return f"{HOSTILE}the job's run: {self.run}\n{self.stopped}subquad resume {self.run}\n"

    def follow(self, job, show):
        show(HOSTILE)
        return self.info(job)

    def info(self, job):
        return SimpleNamespace(
            status=SimpleNamespace(value="FAILED", is_terminal=lambda: True),
            driver_exit_code=None,
            message=HOSTILE,
            metadata={"subquad": "1", "command": HOSTILE, "further": "; rm -rf ~"},
            submission_id=HOSTILE,
            start_time=0,
            end_time=0,
        )

    def all(self):
        return [self.info("")]

    def stop(self, job):
        return self.info(job), True


@pytest.mark.parametrize(
    "words", [["logs", "a"], ["logs", "a", "-f"], ["stop", "a"], ["status"], ["status", "a"]]
)
def test_what_a_cluster_says_cannot_steer_the_terminal(words, tmp_path, monkeypatch, capsys):
    found = Hostile(tmp_path)
    found.run = "runs/a/b; rm -rf ~"
    monkeypatch.setattr("subquad.cli.submit._connect", lambda address, insecure: found)
    main(["submit", *words])
    output = "".join(capsys.readouterr())
    assert "\\x1b" in output
    assert not {letter for letter in output if not letter.isprintable()} - {"\n"}
    if words[0] == "stop":
        assert "rm -rf" not in output


@pytest.mark.parametrize("words", [["stop", "a"], ["status", "a"], ["logs", "a"]])
@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("runs/a/b", "subquad submit resume runs/a/b (and"),
        ("runs/a/../b", None),
        ("s3://evil/runs/a/b", None),
        ("runs/a/$(id)", None),
    ],
)
def test_a_job_without_a_result_names_only_a_place_to_go_on_from(
    run, said, words, tmp_path, monkeypatch, capsys
):
    found = Hostile(tmp_path)
    found.run = run
    monkeypatch.setattr("subquad.cli.submit._connect", lambda address, insecure: found)
    assert main(["submit", *words]) == 0
    out, errors = capsys.readouterr()
    if words[0] == "stop":
        assert "stopped by SIGTERM\\x1b[2J after saving step 3\n" in out
    assert errors == (f"go on with: {said} --root, --plugin as before)\n" if said else "")


def test_files_of_a_job_come_from_the_storage_that_was_given_and_no_other(
    cluster, bucket, tmp_path, capsys, monkeypatch
):
    info = SimpleNamespace(
        status=SimpleNamespace(value="SUCCEEDED", is_terminal=lambda: True),
        driver_exit_code=0,
        submission_id="a",
    )
    monkeypatch.setattr(cluster, "follow", lambda job, show: info, raising=False)
    place = "runs/small/20260101-101500-ab12cd34"
    bucket.write(f"{place}/experiment.yaml", b"name: small")
    bucket.write(f"{place}/checkpoints/step-1/model.safetensors", b"large")
    train = ["submit", "train", "small.yaml", f"resources.storage={bucket.storage}"]
    for said in (place, f"s3://evil/{place}", "runs/../../x"):
        log = f"the job's run: {said}\n"
        monkeypatch.setattr(cluster, "logs", lambda job, log=log: log, raising=False)
        assert main([*train, "--into", str(tmp_path / "into")]) == 0
        found = [path for path in (tmp_path / "into").rglob("*") if path.is_file()]
        assert found == [tmp_path / "into" / place / "experiment.yaml"]
    capsys.readouterr()


def test_a_driver_that_is_killed_is_started_again_in_the_same_job(tmp_path, monkeypatch, capsys):
    """Each start writes what it was given; the first two are killed, the second with a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(job_module, "_LOOK_SECONDS", 0.05)

    def drive(words):
        with (tmp_path / "starts").open("a") as stream:
            print(*words, file=stream)
        starts = (tmp_path / "starts").read_text().count("\n")
        if starts == 2:
            write_file(Path("runs/small/one"), Owner(pid=os.getpid(), host=os.uname().nodename))
        if starts < 3:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(7)

    monkeypatch.setattr("subquad.cli.main.main", drive)
    (tmp_path / "sent").mkdir()
    monkeypatch.chdir(tmp_path / "sent")
    before = signal.getsignal(signal.SIGTERM)
    try:
        code = job_module.do_job("a", tmp_path / "root", version("subquad"), ["train", "x"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert code == 7
    assert (tmp_path / "starts").read_text() == "train x\ntrain x\nresume runs/small/one\n"
    out, errors = capsys.readouterr()
    assert out.count("the job's run: runs/small/one\n") == 1
    assert errors.count("the driver was killed by SIGKILL; another one goes on") == 2
    with pytest.raises(UserError, match=r"of subquad, the job is from 0\.0\.1"):
        job_module.do_job("a", tmp_path / "root", "0.0.1", [])
