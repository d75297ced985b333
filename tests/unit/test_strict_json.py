"""JSON of a stranger is bounded, finite and of the shape that its file promises; true files come
back as they are.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from result_file import ended
from small_run import SMALL

from subquad.experiment import load_study
from subquad.experiment.folder import write_down
from subquad.record.files import (
    find_file,
    json_text,
    parse_object,
    read_file,
    read_json,
    write_file,
)
from subquad.record.integrity import write_result
from subquad.record.models import FILES, Identity, Owner, Result
from subquad.record.names import IDENTITY, OWNER, RESULT, SUMMARY
from subquad.security.strict_json import MAX_DEPTH, MAX_DIGITS, MAX_VALUES, parse_json


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**6, f"nested deeper than {MAX_DEPTH} levels"),
        ('{"a":' * 10**5, f"nested deeper than {MAX_DEPTH} levels"),
        ("[" * 60 + "]" * 60, f"nested deeper than {MAX_DEPTH} levels"),
        ("9" * 10**6, f"a number of 1,000,000 digits, at most {MAX_DIGITS} are read"),
        ("[1e999]", "1e999 is not a finite number"),
        ("-1" + "0" * 400 + ".0", "is not a finite number"),
        ("NaN", "NaN is not a finite number"),
        ('{"a": -Infinity}', "-Infinity is not a finite number"),
        ('{"a": 1, "b": 2, "a": 3}', "key 'a' is given twice"),
        (f"[{'0,' * MAX_VALUES}0]", f"more than {MAX_VALUES:,} values"),
        (b"\xff\xfe{\x00}\x00", "invalid start byte"),
        ("\ufeff{}", "BOM"),
    ],
    ids=range(12),
)
def test_what_is_no_strict_json_is_refused_in_a_line(text, message):
    began = time.process_time()
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        parse_json(text)
    assert message in str(caught.value)
    assert time.process_time() - began < 2


def test_brackets_in_a_text_are_no_depth():
    assert parse_json(json.dumps({"a": "[{" * 1000})) == {"a": "[{" * 1000}


def test_half_a_character_is_written_as_an_escape_and_never_read():
    assert parse_object(json_text({"\udcff": ["a\ud800", Path("\udc80")]})) == {
        r"\udcff": [r"a\ud800", r"\udc80"]
    }
    with pytest.raises(ValueError, match="surrogates"):
        parse_object('{"a": "\\ud800", "check": ""}')


def test_values_without_the_check_of_them_are_not_believed():
    with pytest.raises(ValueError, match="`check` does not fit"):
        parse_object('{"a": 1}')


def test_what_was_given_is_written_though_it_equals_its_default(tmp_path):
    write_file(tmp_path, Owner(pid=None))
    assert read_json(tmp_path / OWNER) == {"pid": None}


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (RESULT, {"test": {"metrics": [1]}}, "test.metrics: input should be a valid dictionary"),
        (RESULT, {"steps": -1}, "steps: input should be greater than or equal to 0"),
        (RESULT, {"steps": 2**63}, "steps: input should be less than 9223372036854775808"),
        (RESULT, {"best": {"step": "4"}}, "best.step: input should be a valid integer"),
        (RESULT, {"notes": "x"}, "notes: input should be a valid tuple"),
        (
            RESULT,
            {"metrics": {"\x1b[2J": 1}},
            "metrics.\\x1b[2J: input should be a dictionary or an instance of metric",
        ),
        (
            IDENTITY,
            {**ended(""), "experiment": {"resources": 3}},
            "experiment.resources: input should be a valid dictionary",
        ),
        (SUMMARY, {"candidates": [{"label": "x"}]}, "candidates.0.metric: field required"),
        (OWNER, {"pid": "\x1b[2J"}, "pid: input should be a valid integer"),
    ],
)
def test_a_file_has_the_shape_of_its_name(tmp_path, name, data, message):
    (tmp_path / name).write_text(
        json_text({**(ended("finished") if name == RESULT else {}), **data})
    )
    with pytest.raises(ValueError, match=":") as caught:
        read_file(FILES[name], tmp_path)
    assert str(caught.value) == message
    assert find_file(FILES[name], tmp_path) is None


@pytest.mark.parametrize("workers", ["2", "1..2"])
def test_what_a_run_is_called_is_read_again(tmp_path, workers):
    """Its folder would count as one without a result."""
    (tmp_path / "small.yaml").write_text(SMALL)
    (run,) = load_study(str(tmp_path / "small.yaml"), [f"resources.workers={workers}"]).runs
    folder = tmp_path / "run"
    write_down(replace(run, place=folder))
    write_result(folder, {**run.names, "status": "finished", "experiment": run.digest})
    identity = read_file(Identity, folder)
    result = read_file(Result, folder)
    assert (identity.digest, str(identity.workers)) == (run.digest, workers)
    assert (result.experiment, str(result.workers)) == (run.digest, workers)
