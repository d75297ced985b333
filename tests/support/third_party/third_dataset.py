"""A data set of waves, slow and fast ones, of different lengths."""

import numpy as np

from subquad.data import ArraySplit, Dataset, DataSpec
from subquad.plugin import DatasetConfig, DatasetPlugin, param

LENGTH, PARTS = 12, ("train", "validation", "test")


class Config(DatasetConfig):
    size: int = param(48, meaning="waves of each split", ge=4)

    def label(self):
        return f"waves-{self.size}"


class Waves(Dataset):
    def describe(self):
        sizes = {"train": self.config.size, "validation": self.config.size, "trainval": 2 * self.config.size}
        return DataSpec.series(LENGTH, channels=2, num_classes=2, class_names=("slow", "fast"), sizes=sizes)

    def load(self, name):
        parts = [self._draw(PARTS.index(one)) for one in (("train", "validation") if name == "trainval" else (name,))]
        return ArraySplit({key: np.concatenate([part[key] for part in parts]) for key in parts[0]})

    def _draw(self, stream):
        random = np.random.Generator(np.random.Philox(stream))
        labels = random.integers(2, size=self.config.size)
        start, steps = random.random((self.config.size, 1)), np.arange(LENGTH)
        angles = start + steps * np.where(labels, 1.2, 0.3)[:, None]
        keep = steps < random.integers(6, LENGTH + 1, size=(self.config.size, 1))
        inputs = np.stack([np.sin(angles), np.cos(angles)], -1).astype(np.float32) * keep[..., None]
        return {"inputs": inputs, "keep": keep, "labels": labels}


PLUGIN = DatasetPlugin(config=Config, build=Waves, summary="waves", inputs="series", targets=("class",))
