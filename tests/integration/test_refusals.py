"""What cannot work is refused before anything is made: one line, exit code 2, no folder."""

from __future__ import annotations

import pytest

from subquad.cli.main import main

ONE = """
name: one
dataset: {name: recall, params: {train_size: 64, validation_size: 32, test_size: 32}}
task: classification
backbone: {name: encoder, params: {num_layers: 1, dim: 64, num_heads: 2, head: last}}
mixer: agf
train: {epochs: 1, batch_size: 64, lr: 1e-3}
"""

REFUSED = [
    (
        ("mixer.params.order=40",),
        "mixer.params.order: got 40, must be a whole number >= 0 and <= 32",
    ),
    (
        ("mixer.params.jacobi_a=-1.0", "mixer.params.jacobi_b=-1.0"),
        "jacobi_a -1 and jacobi_b -1: the Jacobi recurrence divides by zero at k = 2",
    ),
    (
        (
            "mixer=sfpc",
            "mixer.params.basis=jacobi",
            "mixer.params.jacobi_a=-1.0",
            "mixer.params.jacobi_b=-1.0",
        ),
        "jacobi_a -1 and jacobi_b -1: the Jacobi recurrence divides by zero at k = 2",
    ),
    (
        ("mixer=sfpc", "mixer.params.basis=monomial", "mixer.params.order=20"),
        "fp32 loses every digit; use order 12",
    ),
    (
        ("mixer=cur", "mixer.params.num_indices=64"),
        "num_indices 64 is more than the longest sequence has: use 17 or less (mixer cur)",
    ),
    (
        ("mixer=megacur", "mixer.params.num_indices=64"),
        "num_indices 64 is more than the longest sequence has: use 17 or less (mixer megacur)",
    ),
    (
        ("mixer=cur", "mixer.params.selection=steps"),
        "got 'steps', must be one of sum, abs, embed, step, step_full, linspace, random; "
        "did you mean 'step'?",
    ),
    (
        ("mixer=wavelet", "mixer.params.wavelet=dbb4"),
        "there is no discrete wavelet 'dbb4'; did you mean 'db4'?",
    ),
    (("mixer=mdfwa", "mixer.params.wavelet=mexh"), "there is no discrete wavelet 'mexh'"),
    (
        ("mixer=causal_fourier", "mixer.params.period=8"),
        "mixer causal_fourier takes at most 8 positions, got 17",
    ),
    (
        ("mixer=mega", "mixer.params.chunk_size=-1"),
        "mixer.params.chunk_size: got -1, must be a whole number >= 0",
    ),
    (
        ("backbone.params.num_heads=3",),
        "dim 64 is not divisible by num_heads 3: use num_heads 2, or dim 66",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_one_line_exit_2_and_nothing_is_made(settings, message, tmp_path, monkeypatch, capsys):
    (tmp_path / "one.yaml").write_text(ONE)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "one.yaml", "--local", *settings]) == 2
    errors = capsys.readouterr().err
    assert message in errors
    assert errors.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one.yaml"]
