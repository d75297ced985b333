"""Compare two mixers over two seeds, and print the table.

python examples/compare.py
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

import subquad
from subquad.reports import document_of, print_document, read_report


def main() -> None:
    results = subquad.train(
        Path(__file__).parent / "small.yaml", ["matrix.mixer=[agf, identity]", "matrix.seed=[0, 1]"]
    )
    study = Path(results[0]["folder"]).parents[1]
    print_document(document_of(read_report([study])), Console(width=120))
    model = subquad.load(results[0]["folder"])
    print(
        f"{results[0]['label']} can be used at once: {type(model).__name__} in "
        f"{results[0]['folder']}"
    )


if __name__ == "__main__":
    main()
