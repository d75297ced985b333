"""Every built-in mixer on the device is what it is on the CPU: the certificate's check of
kernels, in all variants.
"""

from __future__ import annotations

import pytest
from built_in import abouts

from subquad_check import check_mixer
from subquad_check.meter import CheckFailed

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", abouts())
def test_a_mixer_gives_the_same_numbers_as_on_the_cpu(name, device):
    """In float64, in float32 and under bf16 autocast; by every implementation that the device
    has.
    """
    failed, findings = [], []
    for case in check_mixer(f"subquad:{name}", only=["kernels"], device=device):
        try:
            findings.append(case().words)
        except CheckFailed as reason:
            failed.append(f"{case}: {reason}")
        except pytest.skip.Exception:  # on the CPU, where a mixer has nothing to choose from
            assert device == "cpu"
    assert not failed
    assert findings or device == "cpu"
