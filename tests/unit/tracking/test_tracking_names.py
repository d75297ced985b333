"""Names and values MLflow takes; credentials that must not pass."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subquad.addresses import is_secret, mask
from subquad.record.files import flatten
from subquad.tracking.values import NAME_LIMIT, clean, texts


@given(st.text(max_size=600))
@example("..0")
def test_a_clean_name_is_one_that_mlflow_takes(name: str):
    (short,) = clean({name: 1})
    assert re.fullmatch(r"[/\w.\- ]+", short)
    assert posixpath.normpath(short) == short
    assert not short.startswith(("/", ".."))
    assert len(short) <= NAME_LIMIT
    assert clean({short: 1}) == {short: 1}


@given(st.lists(st.text(alphabet="a@#/.", min_size=1, max_size=4), unique=True))
def test_names_stay_different(names: list[str]):
    assert [*clean({name: name for name in names}).values()] == names


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("top@5", "top_5"),
        ("../../etc", "etc"),
        ("a//b", "a/b"),
        ("", "unnamed"),
        ("mixer.params.order", "mixer.params.order"),
    ],
)
def test_known_names(name: str, short: str):
    assert clean({name: 1}) == {short: 1}


def test_flatten_joins_keys_with_dots_and_keeps_empty_mappings():
    tree = {"train": {"lr": 0.1, "deep": {"a": 1}}, "mixer": {"params": {}}, "list": [1, 2]}
    assert flatten(tree) == {"train.lr": 0.1, "train.deep.a": 1, "mixer.params": {}, "list": [1, 2]}


def test_parameters_are_written_as_yaml_would():
    ready = texts({"a": None, "b": True, "c": "text", "d": [1, "é"]})
    assert ready["a"] == "null"
    assert ready["b"] == "true"
    assert ready["c"] == "text"
    assert ready["d"] == '[1, "é"]'


@pytest.mark.parametrize("key", ["num_tokens", "key_dim", "keys", "token_mixer"])
def test_settings_that_only_look_like_secrets_are_shown(key: str):
    assert not is_secret(key)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:pass@host:5000/a", "http://***@host:5000/a"),
        ("https://token@host", "https://***@host"),
        (
            "postgresql+psycopg2://u:p%40w@db/x?password=hunter2&sslmode=require",
            "postgresql+psycopg2://***@db/x?password=***&sslmode=require",
        ),
        (
            "failed at https://u:p@h/x, then https://u:p@h/y",
            "failed at https://***@h/x, then https://***@h/y",
        ),
        ("http://host/a@b", "http://host/a@b"),
        ("sqlite:////data/x.db", "sqlite:////data/x.db"),
    ],
)
def test_mask_hides_credentials_and_nothing_else(text: str, masked: str):
    assert mask(text) == masked
    assert mask(masked) == masked
