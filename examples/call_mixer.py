"""Build a mixer by its name and call it like any torch module.

python examples/call_mixer.py
"""

from __future__ import annotations

import torch

import subquad


def main() -> None:
    x = torch.randn(2, 100, 32)  # (batch, length, width)
    keep = torch.ones(2, 100, dtype=torch.bool)
    keep[1, 60:] = False  # the second sequence has 60 tokens, the rest is padding
    for name in ("agf", "fourier", "softmax"):
        mixer = subquad.mixer(name, dim=32, num_heads=4)
        mixed = mixer(x, keep=keep)
        weights = sum(parameter.numel() for parameter in mixer.parameters())
        print(
            f"{name:<8} {tuple(mixed.shape)}  {weights:>6,} weights  extra "
            f"losses: {', '.join(mixer.losses) or '-'}"
        )


if __name__ == "__main__":
    main()
