"""Search the settings of a mixer: three trials, then the winner with two seeds and the test data.

python examples/tune.py
"""

from __future__ import annotations

from pathlib import Path

import subquad


def main() -> None:
    found = subquad.tune(
        Path(__file__).parent / "small.yaml",
        ["train.epochs=2"],
        space="agf",
        budget="3-trials",
        final_seeds=2,
    )
    for candidate in found["candidates"]:
        best = candidate["best"]
        finished = candidate["trials"]["finished"]
        print(
            f"{finished} trials, best validation accuracy {best['value']:.3f} with {best['point']}"
        )
    print(f"all of it is in {found['folder']}")


if __name__ == "__main__":
    main()
