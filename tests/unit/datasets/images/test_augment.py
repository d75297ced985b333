"""Pictures on their way to a model: what is random belongs to a sample, and generators are as
they were.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pictures import pixels
from PIL import Image
from pydantic import ValidationError
from timm.data.auto_augment import AugmentOp
from timm.data.mixup import Mixup
from timm.data.transforms_factory import create_transform

from subquad.data import NO_LABEL
from subquad_datasets.augment import AugmentConfig
from subquad_datasets.augment.mix import draw_pairs, mix
from subquad_datasets.augment.pictures import evaluation, randomness_kept, seed_generators, training
from subquad_datasets.augment.split import PictureSplit
from subquad_datasets.decode import UnreadableImage

SIZE = 16
PLAIN = AugmentConfig(size=SIZE)
DEIT = AugmentConfig(
    size=SIZE, auto_augment="rand-m9-mstd0.5-inc1", erase=0.25, mixup=0.8, cutmix=1.0
)


@dataclass(frozen=True, kw_only=True)
class Drawn(PictureSplit):
    """Drawn pictures; every `broken`-th cannot be read."""

    broken: int = 1000

    def picture(self, index: int) -> np.ndarray:
        if index % self.broken == self.broken - 1:
            raise UnreadableImage("as asked")
        return pixels(index)


def split(
    config: AugmentConfig = DEIT, *, training: bool = True, count: int = 12, **more: int
) -> Drawn:
    return Drawn(config=config, labels=np.arange(count) % 3, training=training, **more)


def fetched(split: Drawn, *indices: int, epoch: int = 0, seed: int = 0) -> dict[str, np.ndarray]:
    return split.fetch(np.array(indices), epoch=epoch, seed=seed)


def states() -> list[object]:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # type: ignore[index]


def test_a_sample_is_the_same_in_whatever_batch_and_another_in_another_epoch_or_run():
    whole = fetched(split(), *range(8))
    for first in range(0, 8, 2):
        alone = fetched(split(), first, first + 1)
        assert all(np.array_equal(alone[name], whole[name][first : first + 2]) for name in whole)
    for other in ({"epoch": 1}, {"seed": 1}):
        changed = fetched(split(), *range(8), **other)["inputs"]
        assert not any(
            np.array_equal(picture, former)
            for picture, former in zip(changed, whole["inputs"], strict=True)
        )


def test_generators_are_left_as_they_were():
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    before = states()
    fetched(split(), *range(4))
    assert states() == before


def test_what_was_drawn_before_has_no_influence():
    first = fetched(split(), 0, 1)["inputs"]
    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    assert np.array_equal(fetched(split(), 0, 1)["inputs"], first)


def test_evaluation_is_timms_transform_of_evaluation():
    config = AugmentConfig(size=SIZE, crop_share=0.5, interpolation="bilinear")
    wanted = create_transform(SIZE, interpolation="bilinear", crop_pct=0.5, use_prefetcher=True)
    batch = fetched(split(config, training=False), 4)
    assert np.array_equal(batch["inputs"][0], wanted(Image.fromarray(pixels(4))).numpy())
    assert batch["inputs"].dtype == np.uint8
    assert set(batch) == {"inputs", "labels", "bad"}
    assert np.array_equal(evaluation(config)(pixels(4)), batch["inputs"][0])


def test_without_crop_and_flip_training_sees_what_evaluation_sees():
    config = AugmentConfig(
        size=SIZE, interpolation="bilinear", crop_area=1.0, crop_ratio=1.0, flip=0.0, crop_share=1.0
    )
    square = pixels(3, 24, 24)
    with randomness_kept():
        found, wanted = training(config)(square), evaluation(config)(square)
    assert np.abs(found.astype(int) - wanted).max() <= 1  # torch and Pillow round apart


def test_a_training_crop_is_the_one_that_timm_draws():
    """With the same seed, timm's own transform by Pillow sees the same, but for rounding."""
    config = AugmentConfig(size=SIZE, interpolation="bilinear", flip=0.0)
    wanted = create_transform(
        SIZE,
        is_training=True,
        interpolation="bilinear",
        hflip=0.0,
        color_jitter=None,
        use_prefetcher=True,
    )
    with randomness_kept():
        for seed in range(10):
            seed_generators(seed)
            theirs = wanted(Image.fromarray(pixels(seed, 40, 30))).numpy().astype(int)
            seed_generators(seed)
            assert np.abs(training(config)(pixels(seed, 40, 30)) - theirs).max() <= 1


@pytest.mark.parametrize(("magnitude", "bits"), [(0, 4), (3, 3), (9, 1), (10, 0)])
def test_a_policy_may_keep_no_bit_of_a_picture(magnitude: int, bits: int):
    training(AugmentConfig(auto_augment="rand-m9"))
    changed = np.array(
        AugmentOp("PosterizeIncreasing", prob=1.0, magnitude=magnitude)(Image.fromarray(pixels(0)))
    )
    assert np.array_equal(changed, pixels(0) & (0xFF00 >> bits & 0xFF))


def test_an_erased_rectangle_is_noise_and_the_rest_is_untouched():
    config = AugmentConfig(size=64, crop_area=1.0, crop_ratio=1.0, flip=0.0, erase=1.0)
    square = pixels(3, 64, 64)
    with randomness_kept():
        changed = (
            training(config)(square) != training(config.model_copy(update={"erase": 0.0}))(square)
        ).any(0)
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    box = changed[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    assert 0.01 < changed.mean() < 0.4
    assert box.mean() > 0.9


@pytest.mark.parametrize(
    "policy", ["rand-m10-n3-inc1", "rand-m10-n3", "augmix-m10-w3", "3a", "originalr", "v0"]
)
def test_every_policy_works_at_its_strongest(policy: str):
    own = split(AugmentConfig(size=SIZE, auto_augment=policy))
    pictures = own.fetch(np.arange(12).repeat(10), epoch=0, seed=0)["inputs"]
    assert pictures.std(axis=0).any()


def test_no_bits_left_are_black():
    config = AugmentConfig(size=SIZE, auto_augment="rand-m10-n20-inc1", crop_area=1.0, flip=0.0)
    blackened = 0
    with randomness_kept():
        for seed in range(60):
            seed_generators(seed)
            blackened += not training(config)(pixels(seed)).any()
    assert blackened


def test_unreadable_pictures_are_marked_and_have_no_label_or_partner():
    batch = fetched(split(broken=4), *range(6))
    assert batch["bad"].tolist() == [False, False, False, True, False, False]
    assert batch["labels"].tolist() == [0, 1, 2, NO_LABEL, 1, 2]
    assert batch["other_labels"].tolist()[2:4] == [2, NO_LABEL]
    assert batch["other_share"][2:4].tolist() == [0, 0]
    assert not batch["inputs"][3].any()


def test_the_last_without_a_partner_stays_as_it_is():
    batch = fetched(split(), *range(5))
    assert (batch["other_share"][4], batch["other_labels"][4]) == (0, 1)
    assert np.array_equal(finished(split(), batch)["inputs"][4], batch["inputs"][4])


def finished(split: Drawn, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    on_device = {name: torch.from_numpy(values) for name, values in batch.items() if name != "bad"}
    return {name: values.numpy() for name, values in split.finish(on_device).items()}


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 8])
def test_mixed_pictures_do_not_depend_on_how_a_batch_is_cut(batch_size: int):
    order, own = np.array([5, 2, 9, 0, 7, 1, 3]), split()
    whole = finished(own, own.fetch(order, epoch=2, seed=1))
    size = batch_size * own.together
    pieces = [
        finished(own, own.fetch(order[a : a + size], epoch=2, seed=1))
        for a in range(0, len(order), size)
    ]
    assert "mix_box" not in whole
    for name, values in whole.items():
        assert np.array_equal(np.concatenate([piece[name] for piece in pieces]), values)


def drawn(config: AugmentConfig, count: int = 200) -> dict[str, np.ndarray]:
    with randomness_kept():
        return draw_pairs(config, np.arange(count) % 5, np.arange(count), epoch=0, seed=0)


def test_partners_share_one_draw_and_pairs_differ():
    found = drawn(DEIT)
    for name in ("other_share", "mix_box"):
        assert np.array_equal(found[name][::2], found[name][1::2])
    assert len(set(found["other_share"][::2].tolist())) > 60
    assert found["other_labels"].tolist()[:4] == [1, 0, 3, 2]


def test_mixup_alone_has_no_boxes_and_cutmix_alone_only_boxes():
    mixed, cut = (
        drawn(AugmentConfig(size=SIZE, mixup=0.8)),
        drawn(AugmentConfig(size=SIZE, cutmix=1.0)),
    )
    assert not mixed["mix_box"].any()
    assert (mixed["other_share"] > 0).all()
    top, bottom, left, right = cut["mix_box"].T
    assert np.allclose(cut["other_share"], (bottom - top) * (right - left) / SIZE**2)


def test_mix_prob_and_switch_prob_are_shares():
    found = drawn(
        AugmentConfig(size=SIZE, mixup=1.0, cutmix=1.0, mix_prob=0.5, switch_prob=0.25), 4000
    )
    unmixed, cut = (found["other_share"] == 0).mean(), (found["mix_box"][:, 1] > 0).mean()
    assert abs(unmixed - 0.5) < 0.05
    assert abs(cut - 0.125) < 0.05


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), alpha=st.sampled_from([0.2, 0.8, 1.0]), cut=st.booleans())
def test_pixels_are_mixed_as_timm_mixes_pairs(seed: int, alpha: float, cut: bool):
    pair = np.stack([pixels(seed, SIZE, SIZE), pixels(seed + 1, SIZE, SIZE)]).transpose(0, 3, 1, 2)
    with randomness_kept():
        np.random.seed(seed)
        theirs = torch.from_numpy(pair.copy()).float()
        share = Mixup(alpha, alpha, prob=1.0, switch_prob=float(cut), mode="pair")._mix_pair(theirs)
        np.random.seed(seed)
        own, _ = Mixup(
            alpha, alpha, prob=1.0, switch_prob=float(cut), mode="pair"
        )._params_per_elem(1)
        box = changed_box(theirs.numpy(), pair) if cut else (0, 0, 0, 0)
    other = float(1 - share[0, 0]) if cut else float(1 - own[0])
    ours = mix(
        {
            "inputs": torch.from_numpy(pair.copy()),
            "other_share": torch.tensor([other, other]),
            "mix_box": torch.tensor([box, box]),
        }
    )["inputs"]
    assert (ours.float() - theirs).abs().max() <= 0.5 + 1e-3


def changed_box(after: np.ndarray, before: np.ndarray) -> tuple[int, int, int, int]:
    changed = (after != before).any((0, 1))
    rows, columns = np.flatnonzero(changed.any(1)), np.flatnonzero(changed.any(0))
    return (rows[0], rows[-1] + 1, columns[0], columns[-1] + 1) if len(rows) else (0, 0, 0, 0)


@pytest.mark.parametrize(("given_", "message"), [({"auto_augment": "randm9"}, "auto_augment")])
def test_settings_that_have_no_effect_are_refused(given_: dict[str, float], message: str):
    with pytest.raises(ValidationError, match=message):
        AugmentConfig.model_validate(given_)
