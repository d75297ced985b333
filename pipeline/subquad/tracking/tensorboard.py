"""Event files of TensorBoard, by torch's own writer: `subquad sync FOLDER --to tensorboard`."""

from __future__ import annotations

from pathlib import Path

from subquad.errors import UserError
from subquad.record.layout import enter
from subquad.record.metrics import Place
from subquad.security.disk import delete_tree, hold, make_folder
from subquad.tracking.mirror import (
    about,
    parts_below,
    points_after,
    root_above,
    texts,
    unsent,
    whole_of,
)


def write_events(folder: Path) -> Path:
    """Write a run, or a study or search with all that is below it, anew below `tensorboard` beside
    `runs`.

    Returns:
        the folder of the event files.

    Raises:
        RunError: the folder is no run; or a part of the new one's path is a link.
        UserError: tensorboard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError(
            "--to tensorboard needs tensorboard: pip install 'subquad[tensorboard]'"
        ) from error
    whole = enter(whole_of(folder.resolve()))
    root = root_above(whole)
    hold(root)
    target = root / "tensorboard" / whole.parent.name / whole.name
    delete_tree(target)
    for part in parts_below(whole):
        place = target / part.relative_to(whole)
        make_folder(place, exist_ok=True)
        with SummaryWriter(str(place)) as writer:
            what = about(part, final=True)
            for name, text in texts({**what.params, **what.tags}).items():
                writer.add_text(name, text)
            points, _ = points_after(part, Place())
            for point in unsent([*points, *what.points], {}):
                writer.add_scalar(point.key, point.value, point.step, point.time_ms / 1000)
    return target
