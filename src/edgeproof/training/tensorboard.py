"""TensorBoard logging of training runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from edgeproof._files import check_writable
from edgeproof.training.history import Epoch

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

# Tag and field of each metric of an epoch.
_METRICS = tuple(
    (f"{metric}/{graph}", f"{graph}_{metric}")
    for metric in ("loss", "accuracy")
    for graph in ("train", "val", "clean_train", "clean_val")
)


class TensorBoardLog:
    """Log of all epochs for TensorBoard; pass it to :func:`edgeproof.train` as ``observe``.

    Losses and accuracies on perturbed and clean graphs have tags under ``loss/`` and ``accuracy/``, the coefficients of a
    learned diffusion under ``gamma/``. Epochs of a separate warm-up are not logged; those of a warm-up within the run are
    negative.

    Args:
        folder: Log directory; created if it does not exist.

    Raises:
        ImportError: If TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        check_tensorboard()
        check_writable(Path(folder) / "events")
        self.folder = Path(folder)
        self._writer: SummaryWriter | None = None

    def __call__(self, epoch: Epoch) -> None:
        """Log one epoch."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # A resumed run repeats the epochs after its last checkpoint: replace their entries.
            self._writer = SummaryWriter(str(self.folder), purge_step=epoch.epoch)
        for tag, name in _METRICS:
            value = getattr(epoch, name)
            if value is not None:
                self._writer.add_scalar(tag, value, epoch.epoch)
        for hop, coefficient in enumerate(epoch.gamma or ()):
            self._writer.add_scalar(f"gamma/{hop:02}", coefficient, epoch.epoch)

    def __enter__(self) -> TensorBoardLog:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._writer is not None:
            self._writer.close()


def check_tensorboard() -> None:
    """Raise ``ImportError`` if TensorBoard is not installed."""
    # Importing it would take seconds.
    if find_spec("tensorboard") is None:
        raise ImportError("logging needs TensorBoard: pip install 'edgeproof[logging]'")
