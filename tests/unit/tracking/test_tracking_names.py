"""Names and values MLflow takes; credentials that must not pass."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from subquad.addresses import is_secret, mask
from subquad.runs import flatten
from subquad.tracking.values import NAME_LIMIT, _clean_name, _clean_names, clean_params, clean_tags


@given(st.text(max_size=600))
@example("..0")
def test_a_clean_name_is_one_that_mlflow_takes(name: str):
    short = _clean_name(name)
    assert re.fullmatch(r"[/\w.\- ]+", short)
    assert posixpath.normpath(short) == short
    assert not short.startswith(("/", ".."))
    assert len(short) <= NAME_LIMIT
    assert _clean_name(short) == short


@given(st.lists(st.text(alphabet="a@#/.", min_size=1, max_size=4), unique=True))
def test_names_stay_different(names: list[str]):
    short = _clean_names(names)
    assert list(short) == names
    assert len(set(short.values())) == len(names)


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
    assert _clean_name(name) == short


def test_flatten_joins_keys_with_dots_and_keeps_empty_mappings():
    tree = {"train": {"lr": 0.1, "deep": {"a": 1}}, "mixer": {"params": {}}, "list": [1, 2]}
    assert flatten(tree) == {"train.lr": 0.1, "train.deep.a": 1, "mixer.params": {}, "list": [1, 2]}


def test_parameters_are_written_as_yaml_would_and_long_ones_are_cut_with_a_tag():
    ready, cut = clean_params(
        {"a": None, "b": True, "c": "text", "d": [1, "é"], "long": "y" * 6001, "edge": "y" * 6000}
    )
    assert ready["a"] == "null"
    assert ready["b"] == "true"
    assert ready["c"] == "text"
    assert ready["d"] == '[1, "é"]'
    assert (len(ready["long"]), len(ready["edge"])) == (6000, 6000)
    assert cut == {"param_cut.long": "6001 characters; all of them in the artefact experiment.yaml"}


def test_secrets_do_not_become_parameters_or_tags():
    ready, _ = clean_params(
        {"dataset.params.api_key": "hunter2", "tracking.uri": "https://me:hunter2@host/x"}
    )
    assert ready == {"dataset.params.api_key": "***", "tracking.uri": "https://***@host/x"}
    assert clean_tags({"password": "hunter2", "where": "http://h/?token=hunter2&a=1"}) == {
        "password": "***",
        "where": "http://h/?token=***&a=1",
    }


@pytest.mark.parametrize("key", ["num_tokens", "key_dim", "keys", "token_mixer"])
def test_settings_that_only_look_like_secrets_are_shown(key: str):
    assert not is_secret(key)


@pytest.mark.parametrize("key", ["class_token", "same_key"])
def test_only_texts_are_secrets(key: str):
    assert clean_params({key: True})[0] == {key: "true"}


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
