"""Light halves of the built-in plugins import neither torch nor a data library, and name a heavy
half that exists.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

LIGHT = [
    "subquad_plugins.agf",
    "subquad_plugins.bigbird",
    "subquad_plugins.causal_fourier",
    "subquad_plugins.cur",
    "subquad_plugins.dba",
    "subquad_plugins.fourier",
    "subquad_plugins.identity",
    "subquad_plugins.linformer",
    "subquad_plugins.linear",
    "subquad_plugins.efficient",
    "subquad_plugins.cosformer",
    "subquad_plugins.flowformer",
    "subquad_plugins.performer",
    "subquad_plugins.local",
    "subquad_plugins.longformer",
    "subquad_plugins.luna",
    "subquad_plugins.mdfwa",
    "subquad_plugins.mega",
    "subquad_plugins.megacur",
    "subquad_plugins.nystrom",
    "subquad_plugins.primal",
    "subquad_plugins.reformer",
    "subquad_plugins.sfpc",
    "subquad_plugins.singularformer",
    "subquad_plugins.soft",
    "subquad_plugins.softmax",
    "subquad_plugins.sparse",
    "subquad_plugins.wavelet",
    "subquad_plugins.yoso",
    "subquad_plugins.decoder",
    "subquad_plugins.encoder",
    "subquad_plugins.encoder_decoder",
    "subquad_plugins.dual_encoder",
    "subquad_plugins.classification",
    "subquad_plugins.language_modeling",
    "subquad_plugins.multilabel",
    "subquad_plugins.regression",
    "subquad_plugins.summarization",
    "subquad_datasets.copy",
    "subquad_datasets.image",
    "subquad_datasets.image_folder",
    "subquad_datasets.listops",
    "subquad_datasets.mqar",
    "subquad_datasets.pathfinder",
    "subquad_datasets.recall",
    "subquad_datasets.retrieval",
    "subquad_datasets.table",
    "subquad_datasets.text",
    "subquad_datasets.text_files",
]


def test_descriptors_load_without_torch():
    code = (
        f"import sys, importlib; [importlib.import_module(name) for name in {LIGHT!r}]; "
        "print(sorted({'torch', 'ray', 'mlflow', 'sktime', 'matplotlib', 'scipy', "
        "'pywt', 'timm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("module", LIGHT)
def test_the_heavy_half_can_be_imported(module):
    plugin = importlib.import_module(module).PLUGIN
    heavy, _, name = plugin.build.partition(":")
    assert callable(getattr(importlib.import_module(heavy), name))
    assert plugin.summary
