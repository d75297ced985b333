"""Light halves of the built-in plugins import neither torch nor a data library, and name a heavy
half that exists.
"""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from subquad.registry import find_plugins

KINDS = ("mixer", "backbone", "task", "dataset")
OWN = [found for kind in KINDS for found in find_plugins(kind) if found.distribution == "subquad"]
LIGHT = sorted({found.target.partition(":")[0] for found in OWN})


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
