"""Batches of subjects: from a tensor in memory, or read ahead from a cohort on disk."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from bnt.cohort import Cohort
from bnt.cohort.series import Series
from bnt.cohort.triangle import square_tensor
from bnt.connectivity import connectomes
from bnt.errors import BadInput
from bnt.training.mixup import Batch

RESIDENT_BYTES = 1 << 30  # squares up to this size are kept in memory (or on the device)


class Batches:
    """Subjects of one part of a split, as a source of batches.

    Matrices are unfolded once and kept when they fit into ``resident_bytes``; otherwise vectors are read
    and unfolded batch by batch, one batch ahead of the training step.

    Parameters
    ----------
    cohort : Cohort
    rows : array of int
        Which subjects.
    targets : Tensor, (len(rows), C)
    weights : Tensor, (len(rows),), optional
    window : int or str
        Volumes of each series given to the model; 0 gives none. In training a random window of each
        scan, otherwise its first one; each ROI is standardised within the window. A kind of connectivity, such as
        ``partial``, gives matrices (B, V, V) of that kind instead, computed once from the whole series.
    """

    def __init__(
        self,
        cohort: Cohort,
        rows: np.ndarray,
        targets: Tensor,
        weights: Tensor | None = None,
        *,
        window: int | str = 0,
        device: str = "cpu",
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        self.cohort, self.rows, self.device = cohort, np.asarray(rows), device
        self.window = 0 if isinstance(window, str) else window
        self.targets = targets.to(device)
        self.weights = None if weights is None else weights.to(device)
        self.series: Series | None = None
        self._of_series: Tensor | None = None
        if window:
            if cohort.timeseries is None:
                raise BadInput("This model reads time series and the cohort has none: import one that has series.")
            self.series = cohort.timeseries.select(self.rows)
            if isinstance(window, str):
                self._of_series = torch.from_numpy(connectomes(self.series, window))  # (n, V(V-1)/2)
            short = np.flatnonzero(self.series.lengths < self.window)
            if short.size:
                raise BadInput(
                    f"{cohort.ids[self.rows[short[0]]]} has {self.series.lengths[short[0]]} volumes and the model "
                    f"reads {self.window}: set n_volumes to the shortest series."
                )
        size = 4 * len(self.rows) * cohort.n_rois**2
        self._resident = cohort.batch(self.rows, device) if size <= resident_bytes else None

    def __len__(self) -> int:
        return len(self.rows)

    def _matrices(self, positions: Tensor) -> Tensor:
        if self._resident is not None:
            return self._resident[positions.to(self.device)]
        return self.cohort.batch(self.rows[positions.numpy()], self.device)

    def _windows(self, positions: Tensor, starts: Tensor | None) -> Tensor | None:
        if self.series is None:
            return None
        if self._of_series is not None:
            return square_tensor(self._of_series[positions].to(self.device), 1.0)
        cut = []
        for i, position in enumerate(positions.tolist()):
            start = 0 if starts is None else int(starts[i])
            piece = np.asarray(self.series[position][start : start + self.window], dtype=np.float32)
            sd = piece.std(axis=0)
            cut.append((piece - piece.mean(axis=0)) / np.where(sd > 0, sd, 1))
        return torch.from_numpy(np.stack(cut)).to(self.device)

    def _starts(self, positions: Tensor) -> Tensor | None:
        """Draw where each subject's window begins."""
        if self.series is None or self._of_series is not None:
            return None
        free = torch.from_numpy(self.series.lengths[positions.numpy()] - self.window + 1)
        return (torch.rand(len(positions)) * free).long()

    def _batch(self, positions: Tensor, starts: Tensor | None) -> Batch:
        there = positions.to(self.device)
        weight = None if self.weights is None else self.weights[there]
        return Batch(self._matrices(positions), self.targets[there], weight, self._windows(positions, starts))

    def _ahead(self, parts: list[tuple[Tensor, Tensor | None]]) -> Iterator[Batch]:
        """Yield batches; those read from disk are prepared one ahead in a thread."""
        if self._resident is not None:
            yield from (self._batch(*part) for part in parts)
            return
        with ThreadPoolExecutor(1) as reader:
            coming = reader.submit(self._batch, *parts[0])
            for part in parts[1:]:
                ready, coming = coming.result(), reader.submit(self._batch, *part)
                yield ready
            yield coming.result()

    def shuffled(self, batch_size: int, drop_last: bool) -> Iterator[Batch]:
        """Yield one epoch in a new order, drawn from torch's global generator.

        A batch of one subject is never made (batch statistics are undefined there): it is left out
        like a short last batch.
        """
        order = torch.randperm(len(self))
        parts = [p for p in order.split(batch_size) if len(p) == batch_size or (not drop_last and len(p) > 1)]
        yield from self._ahead([(p, self._starts(p)) for p in parts])

    def in_order(self, batch_size: int = 64) -> Iterator[Batch]:
        """Yield every subject once, in order, with the first window of each series."""
        yield from self._ahead([(p, None) for p in torch.arange(len(self)).split(batch_size)])
