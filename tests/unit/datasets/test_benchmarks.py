"""Under which name published tables have a data set."""

from __future__ import annotations

from typing import Any

import pytest

from subquad.reports.published import published_tables
from subquad_datasets.image import Config as ImageConfig
from subquad_datasets.image.dataset import Image
from subquad_datasets.listops import Config as ListOpsConfig
from subquad_datasets.listops.dataset import ListOps
from subquad_datasets.pathfinder import Config as PathfinderConfig
from subquad_datasets.pathfinder.dataset import Pathfinder
from subquad_datasets.retrieval import Config as RetrievalConfig
from subquad_datasets.retrieval.dataset import Retrieval
from subquad_datasets.text import Config as TextConfig
from subquad_datasets.text.dataset import Text

FEW: dict[str, Any] = {"train_size": 40, "test_size": 4}
LISTOPS: dict[str, Any] = {**FEW, "validation_size": 4, "min_length": 5, "max_length": 20}
IMAGES: dict[str, Any] = {"train_size": 2, "validation_size": 1, "test_size": 1, "processes": 1}


def text(root):
    return Text(TextConfig(max_len=64, **FEW), root)


def listops(root):
    return ListOps(ListOpsConfig(**LISTOPS), root)


def retrieval(root):
    return Retrieval(RetrievalConfig(max_len=64, max_tokens=64, **FEW), root)


def image(root):
    return Image(ImageConfig(**FEW), root)


def pathfinder(root):
    return Pathfinder(PathfinderConfig(**IMAGES), root)


def easy(root):
    return Pathfinder(PathfinderConfig(difficulty="easy", **IMAGES), root)


@pytest.mark.parametrize("make", [text, listops, retrieval, image, pathfinder])
def test_long_range_arena_has_the_names_of_the_ledger(tmp_path, make):
    dataset = make(tmp_path)
    dataset.prepare()
    benchmark = dataset.describe().benchmark
    assert benchmark == make.__name__
    assert any(table.find("softmax", benchmark, "accuracy") for table in published_tables())


def test_nothing_is_published_of_other_difficulties(tmp_path):
    dataset = easy(tmp_path)
    dataset.prepare()
    assert dataset.describe().benchmark == ""
