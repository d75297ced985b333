"""Data of somebody who wishes us ill: each file ends in one line, before it takes the memory
that it asks for.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import re
import resource
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
import webdataset  # noqa: F401  (large libraries are there before memory is limited)
from pyarrow import parquet as files
from sharded import indexed, jpeg

from subquad.cli.main import main

ALLOWED = 1 << 30
"""Bytes of address space that a refusal may take, with what else is imported."""

TS = b"@problemName a\n@timeStamps false\n@classLabel true up down\n@data\n"


def shown(value: object) -> str:
    """A short name of a parameter."""
    return re.sub(r"[^a-z]+", "-", value.lower())[-40:] if isinstance(value, str) else "file"


@contextmanager
def little_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + ALLOWED, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def packed_zeros(
    pieces: int, pack: Callable[[bytes], bytes] = gzip.compress, byte: bytes = b"\0"
) -> bytes:
    """16 MiB of a byte for each piece, packed: such files may follow one another."""
    return pack(byte * (16 << 20)) * pieces


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
    return member.tobuf(tarfile.GNU_FORMAT)


def pax(**told: str) -> bytes:
    """A member with these pax headers."""
    member = tarfile.TarInfo("a.jpg")
    member.pax_headers = told
    return member.tobuf(tarfile.PAX_FORMAT)


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", kind) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def npy(shape: object, descr: str = "<f4", content: bytes = b"") -> bytes:
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + content


def npz(x: bytes) -> bytes:
    return zipped({"x.npy": x, "y.npy": npy((2,), "|u1", b"\0\1")})


def parquet(column: object) -> bytes:
    stream = io.BytesIO()
    files.write_table(
        pa.table({"id": column, "a": column}), stream, compression="zstd", store_schema=False
    )
    return stream.getvalue()


def same_text(rows: int, length: int) -> bytes:
    indices = pa.array(np.zeros(rows, np.int32))
    return parquet(pa.DictionaryArray.from_arrays(indices, ["x" * length]))


def same_number(rows: int) -> bytes:
    return parquet(pa.array(np.zeros(rows, np.int8)))


def refused(capsys, *settings: str, command: tuple[str, ...] = ("data", "prepare")) -> str:
    with little_memory():
        code = main([*command, *settings])
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert code == 2, printed
    assert len(lines) == 1, lines
    assert not re.search(r"unexpected \w+Error", lines[0])
    return lines[0]


def files_in(folder: Path, files: dict[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(folder)


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SUBQUAD_DATA", str(tmp_path / "prepared"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def refused_files(capsys, folder: Path, name: str, files: dict[str, bytes]) -> str:
    return refused(capsys, name, *settings_of(name, files_in(folder, files)))


LINE = "bytes of a line, or more: 33,554,433, at most 33,554,432 are read"
TEXTS = {
    "train_a.jsonl": b'{"text": "a"}\n',
    "train_b.jsonl": b'{"text": "b"}\n',
    "test_a.jsonl": b"",
    "test_b.jsonl": b"",
}
LONG = b"x" * (33 << 20)


@pytest.mark.parametrize(
    ("name", "files", "said"),
    [
        ("lra-text", {**TEXTS, "train_a.jsonl": LONG}, f"train_a.jsonl:1: {LINE}"),
        (
            "lra-text",
            {**TEXTS, "train_a.jsonl": b'{"a": [' + b"[]," * 1_200_000 + b"[]]}"},
            "train_a.jsonl:1: values: ",
        ),
        (
            "lra-text",
            {
                **TEXTS,
                "train_a.jsonl": b"{"
                + b",".join(b'"%d":1' % (i // 2) for i in range(200_000))
                + b"}\n",
            },
            "train_a.jsonl:1: not JSON: '0' is there twice",
        ),
        (
            "lra-text",
            {"train/a/1.txt": LONG, "train/b/1.txt": b"b"},
            "1.txt: bytes: 34,603,008, at most",
        ),
        (
            "lra-retrieval",
            {"train.tsv": LONG, "eval.tsv": b"", "test.tsv": b""},
            f"train.tsv:1: {LINE}",
        ),
        (
            "lra-listops",
            {f"basic_{part}.tsv": LONG for part in ("train", "val", "test")},
            f"basic_train.tsv:1: {LINE}",
        ),
        (
            "pubmed-rct",
            {"train.txt": LONG, "dev.txt": b"", "test.txt": b""},
            f"train.txt:1: {LINE}",
        ),
        (
            "pubmed-summarization",
            {f"{part}.jsonl": LONG for part in ("train", "val", "test")},
            f"train.jsonl:1: {LINE}",
        ),
        (
            "text-files",
            {"train.csv": b"text,label\n" + LONG, "test.csv": b"text,label\na,b\n"},
            f"train.csv:2: {LINE}",
        ),
        ("table", {"train.csv": LONG, "test.csv": LONG}, f"train.csv:1: {LINE}"),
        (
            "table",
            {"train.csv": b"a" + b",a" * 200_000, "test.csv": b"a"},
            "train.csv: columns: 200,000, at most",
        ),
        ("uea", {"A_TRAIN.ts": TS + LONG, "A_TEST.ts": TS}, f"A_TRAIN.ts:5: {LINE}"),
        (
            "uea",
            {
                "A_TRAIN.ts": TS.replace(
                    b"@data", b"@equalLength true\n@seriesLength " + b"9" * 5000 + b"\n@data"
                ),
                "A_TEST.ts": TS,
            },
            "A_TRAIN.ts:5: @seriesLength must be a positive whole number",
        ),
        (
            "lra-listops",
            {
                f"basic_{part}.tsv": b"Source\tTarget\n" + b"[SM " * 10**6 + b"\t1\n"
                for part in ("train", "val", "test")
            },
            "basic_train.tsv:2: 1000000 lists are opened and 0 closed",
        ),
    ],
    ids=shown,
)
def test_lines_and_texts_have_a_limit(capsys, data, name, files, said):
    assert said in refused_files(capsys, data, name, files)


def settings_of(name: str, path: str) -> list[str]:
    own = {"uea": ["problem=A"], "table": ["id=id", "channels=[a]"], "lra-image": ["side=32"]}
    return [f"dataset.params.{setting}" for setting in (f"path={path}", *own.get(name, []))]


def packed_in(name: str, file: str, content: bytes) -> dict[str, bytes]:
    others = {
        "lra-text": TEXTS,
        "uea": {"A_TEST.ts": TS},
        "lra-retrieval": {"eval.tsv": b"", "test.tsv": b""},
        "pubmed-rct": {"dev.txt": b"", "test.txt": b""},
        "pubmed-summarization": {"val.jsonl": b"", "test.jsonl": b""},
        "text-lm": {"valid.txt": b"a", "test.txt": b"a"},
        "text-files": {"test.csv": b"text,label\na,b\n"},
        "table": {"test.csv": b"a"},
    }
    plain = file.rpartition(".")[0]
    return {
        **{path: written for path, written in others[name].items() if path != plain},
        file: content,
    }


@pytest.mark.parametrize("ending", [".xz", ".gz", ".bz2"])
@pytest.mark.parametrize(
    ("name", "file", "byte"),
    [
        ("lra-text", "train_a.jsonl", b" "),
        ("lra-retrieval", "train.tsv", b" "),
        ("pubmed-rct", "train.txt", b" "),
        ("pubmed-summarization", "train.jsonl", b" "),
        ("text-lm", "train.txt", b"a"),
        ("text-files", "train.csv", b" "),
        ("uea", "A_TRAIN.ts", b" "),
    ],
    ids=shown,
)
def test_what_is_unpacked_has_a_limit(capsys, data, name, file, byte, ending):
    pack = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}[ending]
    content = packed_zeros(128, pack, byte)
    errors = refused_files(capsys, data, name, packed_in(name, file + ending, content))
    assert f"{file}{ending}:1: {LINE}" in errors or f"{file}{ending}: bytes unpacked: " in errors


def test_a_packed_table_has_the_limit_too(capsys, data):
    content = gzip.compress(b"id,a\n") + packed_zeros(64, byte=b"\n")
    files = packed_in("table", "train.csv.gz", content)
    assert "train.csv.gz: bytes unpacked: " in refused_files(capsys, data, "table", files)


BATCHES = (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch")


def nested(depth: int) -> bytes:
    """A pickle of a dictionary whose key is a tuple in a tuple in ..."""
    return b"\x80\x02})" + b"\x85" * depth + b"Ns."


def doubled(times: int, empty: bytes = b")", join: bytes = b"\x86") -> bytes:
    """A pickle of a dictionary whose key is a tuple of twice the same tuple of twice the same
    ...
    """
    steps = b"".join(b"q%ch%c%b" % (n, n, join) for n in range(times))
    return b"\x80\x02}" + empty + steps + b"Ns."


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (nested(200_000), "batches.meta: lists and tuples in one another: 101, at most 100"),
        (doubled(60), "batches.meta: values: "),
        pytest.param(
            b"\x80\x02" + b"N0" * 1_100_000 + b"}.",
            "batches.meta: steps of the pickle: 2,000,001",
            marks=pytest.mark.ci,
        ),
        (
            b"\x80\x02}X\x05\x00\x00\x00label]" + b"](" * 150 + b"e" * 150 + b"s.",
            "batches.meta: lists and tuples",
        ),
        (b"\x80\x02\x8a\xff" + b"\x7f" * 10, "batches.meta: not a readable pickle"),
        (
            b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x.",
            "batches.meta: not a readable pickle",
        ),
        (b"\x80\x02(((u.", "batches.meta: not a readable pickle"),
    ],
    ids=shown,
)
def test_pickles_are_looked_at_before_anything_is_built(capsys, data, meta, said):
    files = {"batches.meta": meta, **dict.fromkeys(BATCHES, meta)}
    assert said in refused_files(capsys, data, "lra-image", files)


def test_a_label_that_is_no_number_is_not_shown(capsys, data):
    meta = pickle.dumps({"label_names": ["a", "b"]}, protocol=2)
    lists = b"]" + b"".join(b"q%c0(h%ch%cl" % (n, n, n) for n in range(100, 118))
    batch = pickle.dumps(
        {"labels": [7], "data": np.zeros((1, 3072), np.uint8)}, protocol=3
    ).replace(b"K\x07", lists)
    files = {"batches.meta": meta, **dict.fromkeys(BATCHES, batch)}
    errors = refused_files(capsys, data, "lra-image", files)
    assert "data_batch_1: label list of image 0" in errors


ENDED = bytes(1024)
GZIPPED_GB = packed_zeros(64)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            gzip.compress(header("train/a/1.png", 6 << 30)) + packed_zeros(384),
            "bytes unpacked: 6,4",
        ),
        (
            gzip.compress(header("x", 1 << 30, tarfile.XHDTYPE)) + GZIPPED_GB,
            "bytes of a name in the tar: 1,073,741,824",
        ),
        (
            gzip.compress(header("x", 1 << 30, tarfile.XGLTYPE)) + GZIPPED_GB,
            "bytes of a name in the tar",
        ),
        (
            gzip.compress(header("x", 1 << 30, tarfile.GNUTYPE_LONGNAME)) + GZIPPED_GB,
            "bytes of a name in the tar",
        ),
        (
            gzip.compress(header("x", 1 << 30, tarfile.GNUTYPE_LONGLINK)) + GZIPPED_GB,
            "bytes of a name in the tar",
        ),
        pytest.param(
            gzip.compress(header("a" * 90, 0) * 30_000) * 16,
            "files in the tar: 200,001, at most 200,000",
            marks=pytest.mark.ci,
        ),
        (
            (header("x", 1, tarfile.GNUTYPE_LONGNAME) + b"a".ljust(512, b"\0")) * 5000 + ENDED,
            "too many headers",
        ),
        (pax(size="-1024") + header("b", 0) + ENDED, "not a readable tar"),
        (
            pax(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}) + b"9\n" * 256 + ENDED,
            "a file with holes",
        ),
        (header("x", 0, tarfile.GNUTYPE_SPARSE) + ENDED, "a file with holes"),
        (header("train/a/1.png", 300 << 20) + ENDED, "not a readable tar, or cut off"),
    ],
    ids=shown,
)
def test_tars_are_judged_by_their_headers(capsys, data, content, said):
    data.mkdir()
    (data / "images.tar").write_bytes(content)
    errors = refused(capsys, "lra-image", *settings_of("lra-image", str(data / "images.tar")))
    assert "images.tar" in errors
    assert said in errors


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            header("x", 64 << 20, tarfile.XHDTYPE) + bytes(64 << 20) + ENDED,
            "bytes of a name in the tar: 67,108,864",
        ),
        (header("a.jpg", 1 << 40) + ENDED, "a.jpg: bytes: 1,099,511,627,776, at most 268,435,456"),
        (header("a.cls", 1 << 40) + ENDED, "a.cls: bytes: 1,099,511,627,776, at most 268,435,456"),
        (header("a.jpg", 0, tarfile.GNUTYPE_SPARSE) + ENDED, "a file with holes"),
        (
            pax(size="-1024") + header("b", 0) + ENDED,
            "not a readable tar: 'a.jpg' lies where another",
        ),
        (header("k" * 90 + ".jpg", 0) + ENDED, "has no label"),
    ],
    ids=shown,
)
def test_shards_are_judged_by_their_headers(capsys, data, content, said):
    data.mkdir()
    (data / "a.tar").write_bytes(content)
    assert said in refused(capsys, str(data / "a.tar"), "--jobs", "1", command=("data", "index"))


def test_tars_in_a_tar_end_where_they_end(capsys, data):
    data.mkdir()
    inner = b"".join(header(f"{n}.tar", 0) for n in range(500))
    (data / "a.tar").write_bytes(header("x.tar", 512) + inner + ENDED)
    given = (str(data / "a.tar"), str(data / "out"), "--split", "train")
    errors = refused(capsys, *given, command=("data", "shard"))
    assert "a.tar: " in errors


HEAD = {"format": 1, "name": "a.tar", "size": 2048, "sha256": "0" * 64, "key_bytes": 1}


def row(offset: int = 512, size: int = 1, label: int = 0) -> bytes:
    return struct.pack("<cqqi32s", b"a", offset, size, label, bytes(32))


@pytest.mark.parametrize(
    ("head", "rows", "said"),
    [
        (b"{}", row(), "no index of a shard (format: field required)"),
        (b"[]", row(), "no index of a shard"),
        (b"[" * 90_000, row(), "no index of a shard"),
        (b"[" * 200_000, row(), "bytes of the first line: 200,000, at most 100,000"),
        ({**HEAD, "size": -1}, row(), "no index of a shard (size:"),
        ({**HEAD, "size": 1 << 80}, row(), "no index of a shard (size:"),
        ({**HEAD, "key_bytes": 1 << 31}, row(), "no index of a shard (key_bytes:"),
        ({**HEAD, "key_bytes": "1"}, row(), "no index of a shard (key_bytes:"),
        ({**HEAD, "sha256": "../x"}, row(), "no index of a shard (sha256:"),
        ({**HEAD, "more": 1}, row(), "no index of a shard (more:"),
        (HEAD, row()[:-1], "52 bytes of rows, each has 53"),
        (HEAD, b"", "0 bytes of rows"),
        (HEAD, row(offset=-1), "1 bytes from -1 on"),
        (HEAD, row(size=1 << 40), "are not in the shard's 2,048 bytes"),
        (HEAD, row(size=-(1 << 63)), "are not in the shard's 2,048 bytes"),
        (HEAD, row(offset=2048), "are not in the shard's 2,048 bytes"),
        (HEAD, row(label=-1), "label -1"),
        (HEAD, row(label=1_000_000), "label 1000000"),
    ],
    ids=shown,
)
def test_every_field_of_an_index_is_checked(capsys, data, head, rows, said):
    content = (head if isinstance(head, bytes) else json.dumps(head).encode()) + b"\n" + rows
    index = content + sha256(content).digest()
    files_in(data, {"a.tar": bytes(2048), "a.tar.index": index, "classes.txt": b"x\ny\n"})
    settings = [
        f"dataset.params.{setting}" for setting in (f"path={data}", "train=a.tar", "test=a.tar")
    ]
    errors = refused(capsys, "imagenet", *settings)
    assert "a.tar.index: " in errors
    assert said in errors


HUGE = npy((10**12, 3))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (npz(HUGE), "shape (1000000000000, 3) and type float32 need 12,000,000,0"),
        (npz(npy((10**12, 3), "|S0")), "only arrays of numbers and texts are read"),
        (npz(npy((-1, 3))), "only arrays of numbers and texts are read"),
        (npz(npy((2, 3), "|O", b"x" * 48)), "only arrays of numbers and texts are read"),
        (npz(npy((2,), [("a", "<f4", (10**8,))], b"x")), "need 800,000,"),
        (npz(npy("(" * 3000 + ")" * 3000)), "no readable array"),
        (npz(npy("-" * 9000 + "1")), "no readable array"),
        (npz(npy((64, 1 << 20), "|u1", bytes(64 << 20))), "bytes unpacked: 67,1"),
        (
            zipped({"x.npy": b"", "y.npy": b""}).replace(b"y.npy", b"x.npy"),
            "an array is there twice",
        ),
        (zipped({"x.npy": npy((2, 3), "<f4", bytes(24))})[:-30], "no readable .npz file"),
    ],
    ids=shown,
)
def test_arrays_are_judged_by_their_headers(capsys, data, content, said):
    path = files_in(data, {"train.npz": content, "test.npz": content})
    errors = refused(capsys, "table", f"dataset.params.path={path}")
    assert "train.npz: " in errors
    assert said in errors


def test_overlapping_members_of_an_archive_are_refused(capsys, data):
    content = zipped({f"{n:05d}.npy": bytes(1000) for n in range(2)}, zipfile.ZIP_STORED)
    start = content.index(b"PK\1\2")
    end = content.index(b"PK\5\6")
    entry = content[start : start + 46 + 9]
    entries = b"".join(entry.replace(b"00000", b"%05d" % n) for n in range(1000))
    tail = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1000, 1000, len(entries), start, 0)
    assert end > start
    path = files_in(
        data, dict.fromkeys(("train.npz", "test.npz"), content[:start] + entries + tail)
    )
    assert "lie over one another" in refused(capsys, "table", f"dataset.params.path={path}")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: same_number(20_000_000), "train.parquet: bytes of its values: 3"),
        (lambda: same_text(2_000, 1 << 20), "train.parquet: bytes of column 'id': 2,097,152,000"),
    ],
    ids=shown,
)
def test_what_stands_in_parquet_once_for_many_rows_is_counted(capsys, data, make, said):
    content = make()
    assert len(content) < 4 << 20
    files = {"train.parquet": content, "test.parquet": content}
    assert said in refused_files(capsys, data, "table", files)


def test_a_long_text_does_not_make_all_others_as_long(capsys, data):
    content = b"id,a,label\n" + b"x" * 1_000_000 + b",1,u\n" + b"b,1,v\n" * 100_000
    errors = refused_files(capsys, data, "table", {"train.csv": content, "test.csv": content})
    assert "column 'id': bytes, each text with room for the longest: 400,004,000,000" in errors


@pytest.mark.parametrize(
    ("picture", "said"),
    [
        (
            jpeg(0, 0).replace(b"\xff\xda", b"\xff\xda" * 101, 1),
            "101 passes over its pixels, at most 100",
        ),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
            + struct.pack(">II5B", 60_000, 60_000, 8, 2, 0, 0, 0)
            + bytes(99),
            "cannot be|no JPEG",
        ),
        (
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
            + struct.pack(">II5B", 10_000, 10_000, 8, 2, 0, 0, 0)
            + bytes(99),
            "cannot be|no JPEG|pixels",
        ),
    ],
    ids=shown,
)
def test_pictures_are_refused_one_by_one(picture, said):
    from subquad_datasets.decode import UnreadableImage, decode

    with little_memory(), pytest.raises(UnreadableImage, match=said):
        decode(picture)


def test_an_index_of_true_shards_is_read(data):
    data.mkdir()
    assert indexed(data / "a.tar", {"a.jpg": jpeg(0, 0), "a.cls": b"1"}).exists()
