"""The path from a target to its results refuses what cannot be done before anything is made."""

from __future__ import annotations

import pytest
from small_run import SMALL

from subquad.errors import UserError
from subquad.session import Session


def test_training_here_and_on_a_cluster_are_not_asked_for_together(tmp_path):
    with pytest.raises(UserError, match="--local and --address auto: give one of them"):
        Session(str(tmp_path), local=True, address="auto", jobs=None)


def test_what_this_machine_has_no_room_for_is_refused_before_a_folder_is_made(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    session = Session(str(tmp_path), local=True, address=None, jobs=None)
    study = session.load(str(path), ["resources.gpus_per_worker=800"])
    with pytest.raises(UserError, match=r"resources\.gpus_per_worker"):
        session.begin(study)
    assert not (tmp_path / "runs" / "small").exists()
