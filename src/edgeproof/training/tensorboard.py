"""Training as curves in TensorBoard."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from edgeproof._files import check_writable
from edgeproof.training.history import Epoch

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_MEASURED = tuple(
    (f"{what}/{where}", f"{where}_{what}")
    for what in ("loss", "accuracy")
    for where in ("train", "val", "clean_train", "clean_val")
)


class TensorBoardLog:
    """Writes every epoch as it comes; to be handed to :func:`edgeproof.train` as ``observe``.

    Losses and accuracies, on attacked graphs and on clean ones, are under ``loss/`` and ``accuracy/``, the coefficients of a
    learned diffusion under ``gamma/``. A warm-up that is a run of its own is not logged; one that is part of the run has
    negative epochs, as in the history.

    Args:
        folder: where TensorBoard will look; made if it is not there.

    Raises:
        ImportError: without TensorBoard.
    """

    def __init__(self, folder: str | Path) -> None:
        check_tensorboard()
        check_writable(Path(folder) / "events")
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None

    def __call__(self, epoch: Epoch) -> None:
        """Write one epoch down."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # An interrupted run goes on from its last checkpoint: what it had logged beyond that is logged anew.
            self._writer = SummaryWriter(str(self.folder), purge_step=epoch.epoch)
        for tag, name in _MEASURED:
            value = getattr(epoch, name)
            if value is not None:
                self._writer.add_scalar(tag, value, epoch.epoch)
        for step, weight in enumerate(epoch.gamma or ()):
            self._writer.add_scalar(f"gamma/{step:02}", weight, epoch.epoch)

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()


def check_tensorboard() -> None:
    """Raise now, rather than after the long work, if there is no TensorBoard to log with."""
    # Looked for, not imported: importing takes seconds.
    if find_spec("tensorboard") is None:
        raise ImportError("logging needs TensorBoard: pip install 'edgeproof[logging]'")
