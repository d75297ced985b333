"""What foreign code prints does not reach stdout."""

import ctypes
import os
import subprocess
import sys

from subquad.registry import stdout_to_stderr


def test_prints_of_python_c_and_children_go_to_stderr(capfd):
    print("before")
    with stdout_to_stderr():
        print("python")
        os.write(1, b"descriptor\n")
        ctypes.CDLL(None).puts(b"c library")
        subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    print("after")
    out, err = capfd.readouterr()
    assert out == "before\nafter\n"
    assert {"python", "descriptor", "c library", "child"} <= set(err.split("\n"))


def test_a_closed_stdout_is_no_problem():
    code = "from subquad.registry import stdout_to_stderr\nwith stdout_to_stderr(): pass"
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -P -c "$1" >&-', sys.executable, code],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
