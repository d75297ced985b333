"""The restricted unpickler: it reads what CIFAR-10's batches hold, and a pickle that wants more
is refused.
"""

from __future__ import annotations

import os
import pickle
import struct
from typing import Any

import cifar_layouts as layouts
import numpy as np
import pytest

from subquad.errors import DataError
from subquad_datasets.image.unpickle import read_pickle

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 12)


def test_a_batch_of_python_2():
    found = read_pickle(layouts.batch(PIXELS, [3, 7]), "x")
    assert sorted(found) == ["batch_label", "data", "filenames", "labels"]
    assert np.array_equal(found["data"], PIXELS)
    assert found["labels"] == [3, 7]


@pytest.mark.parametrize("protocol", [3, 4])
def test_a_batch_of_python_3(protocol: int):
    found = read_pickle(pickle.dumps({"data": PIXELS, "labels": [1]}, protocol=protocol), "x")
    assert np.array_equal(found["data"], PIXELS)


class Calls:
    """Pickles as a call."""

    def __init__(self, function: Any, *given: Any):
        self.call = function, given

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize(
    ("function", "given"), [(os.system, "touch {}"), (exec, "open({!r}, 'w')"), (eval, "1")]
)
def test_a_malicious_pickle_is_refused_before_anything_runs(tmp_path, protocol, function, given):
    mark = tmp_path / "it-ran"
    bad = pickle.dumps({"data": Calls(function, given.format(str(mark)))}, protocol=protocol)
    with pytest.raises(DataError, match=r"^evil: (refused: it asks for|not a readable pickle)"):
        read_pickle(bad, "evil")
    assert not mark.exists()


@pytest.mark.parametrize(
    "name",
    [
        b"os\nsystem", b"builtins\neval", b"__builtin__\neval", b"numpy\nload",
        b"numpy\nndarray.__class__", b"numpy.core.multiarray\nscalar", b"subprocess\nPopen",
        b"_codecs\nencode", b"copyreg\n_reconstructor",
    ],
)  # fmt: skip
def test_every_other_name_is_refused(name: bytes):
    shown = name.decode().replace("\n", ".")
    with pytest.raises(
        DataError, match=rf"^x: refused: it asks for {shown}, which images do not need$"
    ):
        read_pickle(b"\x80\x02c" + name + b"\n.", "x")


def test_a_dotted_name_does_not_get_past_a_known_one():
    bad = b"\x80\x04\x8c\x05numpy\x8c\x17ndarray.__reduce_ex__.x\x93."
    with pytest.raises(DataError, match=r"refused: it asks for numpy\.ndarray\.__reduce_ex__\.x,"):
        read_pickle(bad, "x")


@pytest.mark.parametrize(
    "bad",
    [
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",  # BYTEARRAY8 that wants a terabyte
        b"\x80\x02\x82\x01.",  # EXT1
        b"cnumpy\nndarray\n)\x81.",  # NEWOBJ
        b"Pname\n.",  # PERSID
        b"(i__main__\nX\n.",  # INST
        b"\x8b" + struct.pack("<i", 2**31 - 1) + b".",  # LONG4
        b"",
        b"}",
        b"}}}s.",
        b"\x80\x63.",
        layouts.batch(PIXELS, [3, 7])[:-30],
    ],
)
def test_opcodes_that_images_do_not_need_and_damaged_files(bad: bytes):
    with pytest.raises(DataError, match=r"^x: (not a readable pickle \(|refused|holds a)"):
        read_pickle(bad, "x")


def test_a_memo_index_takes_no_room():
    assert read_pickle(b"\x80\x02}r" + struct.pack("<I", 2**32 - 1) + b".", "x") == {}


def test_what_a_pickle_does_to_its_stand_ins_ends_with_it():
    """It sets attributes on a function it was given, and calls it."""
    start = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
    assert read_pickle(start + b"(N}X\x08\x00\x00\x00__name__X\x03\x00\x00\x00badstb0}.", "x") == {}
    with pytest.raises(DataError, match="not a readable pickle"):
        read_pickle(b"\x80\x02cnumpy\nndarray\n(N}U\x05stateK\x01stb0}.", "x")
    assert np.array_equal(read_pickle(layouts.batch(PIXELS, [3, 7]), "x")["data"], PIXELS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            layouts.mapping(data=layouts.array(PIXELS, kind=b"O8")),
            r"x: not an array of uint8 in C order \(dtype O8",
        ),
        (
            layouts.mapping(data=layouts.array(PIXELS, kind=b"f8")),
            r"x: not an array of uint8 in C order \(dtype f8",
        ),
        (
            layouts.mapping(
                data=layouts.array(PIXELS).replace(layouts.number(12), layouts.number(13))
            ),
            r"x: not an array of uint8 in C order \(cannot reshape",
        ),
        (pickle.dumps([1]), "x: holds a list, not a dict"),
    ],
)
def test_other_contents(data: bytes, message: str):
    with pytest.raises(DataError, match=message):
        read_pickle(data, "x")
