"""Golden values of the archive's usual loader on JapaneseVowels: statistics, padding, masks,
labels, lengths.
"""

from __future__ import annotations

import numpy as np
import pytest
from golden_files import golden_files, paths

from subquad.data import SplitName
from subquad_datasets.uea import UeaConfig
from subquad_datasets.uea.arrays import fit_normalizer, pad
from subquad_datasets.uea.dataset import UeaDataset
from subquad_datasets.uea.source import bundled_folder
from subquad_datasets.uea.ts import Cases, read_ts

Golden = dict[str, np.ndarray]


@pytest.fixture(scope="module", params=golden_files("uea loader"))
def golden(request) -> Golden:
    with np.load(paths()[request.param]) as file:
        return dict(file)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> UeaDataset:
    return UeaDataset(UeaConfig(problem="JapaneseVowels"), tmp_path_factory.mktemp("root"))


def read(name: str) -> Cases:
    folder = bundled_folder()
    assert folder is not None
    return read_ts(folder / "JapaneseVowels" / f"JapaneseVowels_{name}.ts")


def test_statistics_in_float64(golden: Golden) -> None:
    normalizer = fit_normalizer(read("TRAIN").values)
    np.testing.assert_allclose(normalizer.mean, golden["mean"], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(normalizer.std, golden["std"], rtol=1e-12, atol=1e-12)


def test_lengths_and_labels(golden: Golden, dataset: UeaDataset) -> None:
    for name, split in (("train", dataset.load("trainval")), ("test", dataset.load("test"))):
        np.testing.assert_array_equal(read(name.upper()).lengths, golden[f"{name}_lengths"])
        np.testing.assert_array_equal(split.arrays["labels"], golden[f"{name}_labels"])


@pytest.mark.parametrize(("name", "suffix"), [("TRAIN", ""), ("TEST", "t")])
def test_values_before_the_cast(golden: Golden, name: str, suffix: str) -> None:
    cases, max_len = read(name), int(golden["max_len"].item())
    inputs, keep = pad(
        fit_normalizer(read("TRAIN").values)(cases.values), cases.lengths, max_len, dtype=np.float64
    )
    chosen = golden[f"{name.lower()}_ids"]
    assert inputs.dtype == np.float64
    np.testing.assert_allclose(inputs[chosen], golden[f"X{suffix}"], rtol=0, atol=2e-5)
    np.testing.assert_array_equal(keep[chosen], golden[f"mask{suffix}"])


@pytest.mark.parametrize(("name", "suffix"), [("trainval", ""), ("test", "t")])
def test_split_as_it_is_trained_on(
    golden: Golden, dataset: UeaDataset, name: SplitName, suffix: str
) -> None:
    batch = dataset.load(name).fetch(golden["test_ids" if suffix else "train_ids"], epoch=0, seed=0)
    np.testing.assert_allclose(batch["inputs"], golden[f"X{suffix}"], rtol=0, atol=2e-5)
    np.testing.assert_array_equal(batch["keep"], golden[f"mask{suffix}"])
    np.testing.assert_array_equal(batch["labels"], golden[f"y{suffix}"][:, 0])


def test_padded_length_is_that_of_train(golden: Golden, dataset: UeaDataset) -> None:
    assert (
        dataset.describe().max_len
        == golden["max_len"].item()
        == golden["train_lengths"].max()
        == 26
    )
    assert golden["test_lengths"].max() == 29
