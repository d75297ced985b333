"""One path from a target to a study that can train: load, check, size, start. Commands, Python and
notebooks take it.

Names and settings are looked at before torch is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subquad.errors import RunError, UserError
from subquad.experiment import Study, load_given
from subquad.record.stores import root_of
from subquad.security.disk import delete, make_folder, opened, temporary_beside

if TYPE_CHECKING:
    from subquad.execution.executor import Executor
    from subquad.search.fitting import Prepared
    from subquad.search.settings import Settings


class Session:
    """Where something is trained, and by what.

    Args:
        root: folder for runs/ and the tracking database, or an address of storage.
        local: without Ray. Of ranks that torchrun or srun started all but the first one take part
            here, and end.
        address: of a Ray cluster; None: what RAY_ADDRESS says, else one is started on this machine.
        jobs: runs at once; None: as many as fit.
        trains: something will be; ranks then join before anything is read, as the first one alone
            says what is wrong with it.

    Raises:
        UserError: they cannot be used, or not together.
    """

    def __init__(
        self,
        root: str,
        *,
        local: bool,
        address: str | None,
        jobs: int | None,
        trains: bool = True,
    ):
        if local and address:
            raise UserError(f"--local and --address {address}: give one of them")
        self._root, self._storage = root_of(root)
        self._local = local
        self._address = address
        self._jobs = jobs
        if trains and {"RANK", "SLURM_PROCID"} & os.environ.keys():
            _ = self.executor

    @cached_property
    def executor(self) -> Executor:
        """What trains: this machine's own processes, Ray on this machine, or a Ray cluster."""
        if self._local:
            from subquad.execution.local import LocalExecutor
            from subquad.execution.ranks import joined

            return LocalExecutor(self._jobs, joined())
        from subquad.ray.executor import RayExecutor
        from subquad.ray.existing import ClusterExecutor

        address = self._address or os.environ.get("RAY_ADDRESS")
        if address and address != "local":
            return ClusterExecutor(address, self._jobs)
        return RayExecutor(self._jobs)

    @property
    def root(self) -> Path:
        """An absolute folder that files can be made in.

        Raises:
            RunError: it cannot be written.
        """
        root = self._root.resolve()
        try:
            make_folder(root / "runs", exist_ok=True)
            probe = temporary_beside(root / "runs" / "probe")
            with opened(probe, "xb"):
                delete(probe)
        except OSError as error:
            raise RunError(
                f"--root {root}: {error.strerror}: runs cannot be written there"
            ) from error
        return root

    def load(self, target: str, overrides: Sequence[str] = (), **more: Any) -> Study:
        """An experiment or study, with what the place of training decides where nobody says it.

        Args:
            more: see `subquad.experiment.load_study`.

        Raises:
            ConfigError: it cannot be used.
        """
        given = (*overrides, *self._storage)
        if "executor" in vars(self):
            given = self.executor.placed(given)
        return load_given(target, given, **more)

    def begin(self, study: Study) -> Study:
        """Refuse what cannot run, give models the same size where the study asks for it, and make
        its folder.

        Raises:
            UserError: what cannot work, in one line.
        """
        from subquad.experiment.folder import start
        from subquad.preparation.costs import StudyCosts
        from subquad.preparation.size import equal_size

        self.executor.preflight(study)
        if study.match:
            study = equal_size(
                study, self.executor.there(StudyCosts, study.runs[0].experiment.resources)
            )
        return start(study, self.root)

    def prepare(self, study: Study, settings: Settings, **more: Any) -> Prepared:
        """The same for a search, whose folder `write_search` makes.

        Args:
            more: see `subquad.search.prepare.prepare`.

        Raises:
            UserError: what cannot work, in one line.
        """
        from subquad.search.prepare import prepare
        from subquad.search.search import plan_search

        return prepare(plan_search(study, settings), self.executor, **more)
