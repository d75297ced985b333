"""Child process of a download: `python fetch.py PROBLEM FOLDER` lets sktime fill FOLDER/PROBLEM.
Imports no subquad.

In a process of its own, because sktime's downloader sets no limit of time.
"""

from __future__ import annotations

import socket
import sys
import warnings

CONNECT_TIMEOUT_S = 10.0


def main(problem: str, folder: str) -> int:
    """Fetch, and print the reason of a failure as one line on stderr."""
    socket.setdefaulttimeout(CONNECT_TIMEOUT_S)
    warnings.simplefilter("ignore")
    try:
        from sktime.datasets import load_UCR_UEA_dataset

        load_UCR_UEA_dataset(problem, split="TRAIN", extract_path=folder)
    except Exception as error:
        print(" ".join(str(error).split()) or type(error).__name__, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
