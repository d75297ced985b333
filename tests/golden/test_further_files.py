"""Files of the folders in SUBQUAD_GOLDEN: whole layers and dual models are read, and what is not is told loudly."""

from __future__ import annotations

import golden_files
import numpy as np
import pytest
import test_lra_dual
import test_mdfwa_layer
import torch

from subquad_plugins.mdfwa.naive import mdfwa


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBQUAD_GOLDEN", str(tmp_path))
    return tmp_path


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("causal", [False, True])
def test_a_whole_mdfwa_layer_is_read(folder, causal, assert_close):
    torch.manual_seed(4)
    names = ("F_F", "F_W", "P", "W_G")
    given = {"X": drawn(2, 12, 6), **{name: drawn(6, 6) for name in names}, "b": drawn(6), "b_G": drawn(6)}
    given |= {"alpha": torch.softmax(drawn(3), 0), "gain": drawn(6), "bias": drawn(6), "wavelet": "haar"}
    given |= {"period": 16, "norm": "causal_rms"} if causal else {"form": "hartley"}
    expected = mdfwa(**given)
    arrays = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in given.items()}
    np.savez(folder / "mdfwa_layer_drawn.npz", **arrays, LN_Y=expected, out=expected + given["X"])
    assert test_mdfwa_layer.compare("mdfwa_layer_drawn", assert_close)
    np.savez(folder / "mdfwa_layer_drawn.npz", **arrays, LN_Y=expected + 1e-9)
    with pytest.raises(AssertionError):
        test_mdfwa_layer.compare("mdfwa_layer_drawn", assert_close)


def test_a_whole_dual_model_is_read(folder, assert_close):
    """The authors' tower and hidden states, of which a drawn head makes the logits of pairs."""
    torch.manual_seed(4)
    arrays = golden_files.load_golden("lra_softmax_modelforsc")
    width, head = arrays["hidden"].shape[-1], "sd/seq_classifer.mlpblock.0.weight"
    arrays |= {head: torch.randn(len(arrays[head]), 4 * width)}
    outputs = len(arrays["sd/seq_classifer.mlpblock.2.bias"])
    keep, state = arrays["mask"].bool(), test_lra_dual.state_of(arrays)
    model = test_lra_dual.dual(arrays, state, outputs)
    model.load_state_dict(state)
    a = (arrays["hidden"] * keep[..., None]).mean(1)
    b = a.roll(1, 0)
    logits = model.head(torch.cat([a, b, a * b, a - b], 1))
    pairs = {"ids_1": arrays["ids"].roll(1, 0), "mask_1": arrays["mask"].roll(1, 0)}
    kept = {name: one for name, one in arrays.items() if name.startswith("sd/") or name in ("ids", "mask", "heads")}
    np.savez(folder / "lra_dual_drawn.npz", **kept, **pairs, logits=logits.detach())
    test_lra_dual.test_whole_dual_model("lra_dual_drawn", assert_close)


def test_a_file_that_no_test_reads_is_told(folder):
    for name in ("zoo_unheard_of", "cur_select", "cur_other"):
        np.savez(folder / f"{name}.npz", x=np.ones(3))
    golden_files.load_golden("cur_other")
    golden_files.load_golden("cur_select")  # our own, which hides the folder's
    assert golden_files.unread() == [folder / "cur_select.npz", folder / "zoo_unheard_of.npz"]
