"""Normalisation and padding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from subquad_datasets.uea.arrays import fit_normalizer, no_normalizer, pad

LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=6)


def test_statistics_are_over_time_steps_with_one_degree_of_freedom_less() -> None:
    values = np.array([[1.0, 10.0], [2.0, 30.0], [6.0, 20.0]])
    normalizer = fit_normalizer(values)
    np.testing.assert_allclose(normalizer.mean, [3, 20], rtol=1e-15)
    np.testing.assert_allclose(normalizer.std, [np.sqrt(7), 10], rtol=1e-15)
    np.testing.assert_allclose(normalizer(values).std(axis=0, ddof=1), 1, rtol=1e-12)


@pytest.mark.parametrize("constant", [0.0, 0.1, -3e7])
def test_constant_channel_becomes_zero_and_not_noise(constant: float) -> None:
    values = np.stack([np.full(1001, constant), np.arange(1001.0)], axis=1)
    normalizer = fit_normalizer(values)
    assert normalizer.constant == (0,)
    np.testing.assert_array_equal(normalizer(values)[:, 0], 0)
    np.testing.assert_allclose(normalizer(np.array([[constant + 2, 0.0]]))[0, 0], 2, rtol=1e-7)


def test_single_time_step_is_constant() -> None:
    normalizer = fit_normalizer(np.array([[5.0, -1.0]]))
    assert normalizer.constant == (0, 1)
    np.testing.assert_array_equal(normalizer(np.array([[5.0, -1.0]])), [[0, 0]])


def test_of_many_constant_channels_the_first_are_named() -> None:
    values = np.zeros((3, 14))
    values[:, 1:3] = np.arange(3.0)[:, None]
    assert fit_normalizer(values).notes == [
        "constant in TRAIN, set to 0: channel 1, 4, 5, 6, 7, 8, 9, 10, 11, 12, ... (12 of 14)"
    ]
    assert fit_normalizer(values[:, :2]).notes == ["constant in TRAIN, set to 0: channel 1"]
    assert fit_normalizer(values[:, 1:3]).notes == []


def test_no_normalizer_leaves_values_alone() -> None:
    values = np.array([[1.5, -2.0], [3.0, 0.25]])
    np.testing.assert_array_equal(no_normalizer(2)(values), values)


@given(LENGTHS, st.integers(1, 9))
def test_padding_keeps_every_step_up_to_the_limit(lengths: list[int], max_len: int) -> None:
    series = [np.random.default_rng(i).normal(size=(length, 2)) for i, length in enumerate(lengths)]
    padded, keep = pad(np.concatenate(series), np.array(lengths), max_len, dtype=np.float64)
    assert padded.shape == (len(lengths), max_len, 2)
    for row, mask, values in zip(padded, keep, series, strict=True):
        np.testing.assert_array_equal(row[mask], values[:max_len])
        np.testing.assert_array_equal(row[~mask], 0)
        assert mask.sum() == min(len(values), max_len)
        assert not mask[min(len(values), max_len) :].any()
