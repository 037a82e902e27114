"""Batches of subjects for networks: reading, mixup and centring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bnt.cohort import Cohort
from bnt.cohort._scans import Series
from bnt.cohort._triangle import square_tensor
from bnt.connectivity import connectomes
from bnt.errors import BadInput
from bnt.nn import Output
from bnt.nn._network import draw_mixup


@dataclass
class Batch:
    """What one step of training sees.

    Attributes
    ----------
    x : Tensor, (B, V, V)
    target : Tensor, (B, C) class probabilities, or (B, 1) standardised targets
    weight : Tensor, (B,), or None
    series : Tensor, (B, T, V), or None
    lengths : Tensor of int, (B,), or None
        Volumes of each series before its padding, where series are whole scans.
    """

    x: Tensor
    target: Tensor
    weight: Tensor | None = None
    series: Tensor | None = None
    lengths: Tensor | None = None

    @property
    def of_series(self) -> dict[str, Tensor | None]:
        """What a network is given beside the connectomes, by name."""
        return {"series": self.series} if self.lengths is None else {"series": self.series, "lengths": self.lengths}


def mixup(batch: Batch, alpha: float) -> Batch:
    """Mix a batch with a permutation of itself: x' = l x + (1 - l) x[perm], l ~ Beta(alpha, alpha).

    Both draws come from torch's global generator. Weights are mixed like labels. Of two whole scans as many volumes are
    mixed as the shorter one has.
    """
    lam, permutation = draw_mixup(len(batch.x), alpha)
    permutation = permutation.to(batch.x.device)

    def mixed(values: Tensor | None) -> Tensor | None:
        return None if values is None else torch.lerp(values[permutation], values, lam)

    x, target = mixed(batch.x), mixed(batch.target)
    assert x is not None
    assert target is not None
    lengths = None if batch.lengths is None else torch.minimum(batch.lengths, batch.lengths[permutation])
    return Batch(x, target, mixed(batch.weight), mixed(batch.series), lengths)


@dataclass(frozen=True)
class Whole:
    """Whole scans, each ROI standardised over its scan, padded with zeros to the longest of the batch.

    Attributes
    ----------
    crop : int
        In training a random piece of so many volumes is cut from each standardised scan; 0 cuts none, nor is a shorter
        scan cut.
    connectomes : bool
        Whether the model reads connectomes too. Where it does not, none are read from the cohort: it is given zeros.
    """

    crop: int = 0
    connectomes: bool = True


RESIDENT_BYTES = 1 << 30  # squares up to this size are kept in memory (or on the device)


class Batches:
    """Subjects of one set of a split, as a source of batches.

    Matrices are unfolded once and kept when they fit into ``resident_bytes``; otherwise vectors are read
    and unfolded batch by batch, one batch ahead of the training step.

    Parameters
    ----------
    rows : array of int
        Which subjects.
    targets : Tensor, (len(rows), C)
    weights : Tensor, (len(rows),), optional
    window : int, str or Whole
        Volumes of each series given to the model; 0 gives none. In training a random window of each
        scan, otherwise its first one; each ROI is standardised within the window. A kind of connectivity, such as
        ``partial``, gives matrices (B, V, V) of that kind instead, computed once from the whole series. ``Whole`` gives
        scans of any length, with their lengths.
    """

    def __init__(
        self,
        cohort: Cohort,
        rows: np.ndarray,
        targets: Tensor,
        weights: Tensor | None = None,
        *,
        window: int | str | Whole = 0,
        device: str = "cpu",
        resident_bytes: int = RESIDENT_BYTES,
    ) -> None:
        self.cohort, self.rows, self.device = cohort, np.asarray(rows), device
        self.window = window if isinstance(window, int) else 0
        self.whole = window if isinstance(window, Whole) else None
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
        self._unread = self.whole is not None and not self.whole.connectomes
        if self._unread:  # one number, seen as the matrices of everyone
            self._resident: Tensor | None = torch.zeros((), device=device).expand(len(self.rows), *[cohort.n_rois] * 2)
        else:
            self._resident = cohort.batch(self.rows, device) if size <= resident_bytes else None
        self._scans: dict[int, np.ndarray] = {}  # standardised, kept where all of them fit
        self._keep_scans = self.series is not None and 4 * self.series.lengths.sum() * cohort.n_rois <= resident_bytes

    def __len__(self) -> int:
        return len(self.rows)

    def _matrices(self, positions: Tensor) -> Tensor:
        if self._resident is not None:
            return self._resident[: len(positions)] if self._unread else self._resident[positions.to(self.device)]
        return self.cohort.batch(self.rows[positions.numpy()], self.device)

    def _windows(self, positions: Tensor, starts: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        """Return the series of a batch and, for whole scans, their lengths."""
        if self.series is None:
            return None, None
        if self._of_series is not None:
            return square_tensor(self._of_series[positions].to(self.device), 1.0), None
        if self.whole is not None:
            return self._whole_scans(positions, starts)
        cut = []
        for i, position in enumerate(positions.tolist()):
            start = 0 if starts is None else int(starts[i])
            cut.append(standardised(self.series[position][start : start + self.window]))
        return torch.from_numpy(np.stack(cut)).to(self.device), None

    def _whole_scans(self, positions: Tensor, starts: Tensor | None) -> tuple[Tensor, Tensor]:
        scans = [self._scan(position) for position in positions.tolist()]
        if starts is not None and self.whole is not None and self.whole.crop:
            scans = [scan[start : start + self.whole.crop] for scan, start in zip(scans, starts.tolist())]
        lengths = [len(scan) for scan in scans]
        padded = torch.empty(len(scans), max(lengths), self.cohort.n_rois)
        for row, scan in zip(padded.numpy(), scans):
            row[: len(scan)], row[len(scan) :] = scan, 0.0
        return padded.to(self.device), torch.tensor(lengths, device=self.device)

    def _scan(self, position: int) -> np.ndarray:
        """Return a whole scan, standardised."""
        assert self.series is not None
        if position in self._scans:
            return self._scans[position]
        scan = standardised(self.series[position])
        if self._keep_scans:
            self._scans[position] = scan
        return scan

    def _starts(self, positions: Tensor) -> Tensor | None:
        """Draw where each subject's window begins; nothing is drawn where no window is cut."""
        size = self.window if self.whole is None else self.whole.crop
        if self.series is None or not size:
            return None
        free = torch.from_numpy(self.series.lengths[positions.numpy()] - size + 1).clamp_min(1)
        return (torch.rand(len(positions)) * free).long()

    def _batch(self, positions: Tensor, starts: Tensor | None) -> Batch:
        there = positions.to(self.device)
        weight = None if self.weights is None else self.weights[there]
        return Batch(self._matrices(positions), self.targets[there], weight, *self._windows(positions, starts))

    def _ahead(self, parts: list[tuple[Tensor, Tensor | None]]) -> Iterator[Batch]:
        """Yield batches; those read from disk are prepared one ahead in a thread."""
        if self._resident is not None:
            yield from (self._batch(*part) for part in parts)
            return
        if not parts:
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

    def in_order(self, batch_size: int = 64, first: int = 0, every: int = 1) -> Iterator[Batch]:
        """Yield every subject once, in order, with the first window of each series; or every so many batches."""
        yield from self._ahead([(p, None) for p in torch.arange(len(self)).split(batch_size)[first::every]])


def standardised(series: np.ndarray) -> np.ndarray:
    """Return a series (T, V) with mean 0 and SD 1 of each ROI; a constant ROI is 0."""
    series = np.asarray(series, dtype=np.float32)
    sd = series.std(axis=0)
    return (series - series.mean(axis=0)) / np.where(sd > 0, sd, 1)


Source = Callable[[], Iterable[Tensor]]  # gives the training matrices, batch by batch, as often as it is called


class CentredInputs(nn.Module):
    """A network behind (x - mean) / sd: the training set's mean matrix and one SD for all entries.

    Both are buffers, so they are saved with the weights and new subjects are treated alike.
    """

    def __init__(self, model: nn.Module, n_rois: int) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("mean", torch.zeros(n_rois, n_rois))
        self.register_buffer("sd", torch.ones(()))
        self.mean: Tensor
        self.sd: Tensor

    @torch.no_grad()
    def learn(self, source: Source) -> None:
        """Take mean and SD from the training matrices, in float64, a batch at a time."""
        count, total = 0, torch.zeros_like(self.mean, dtype=torch.float64)
        for x in source():
            count += len(x)
            total += x.sum(dim=0, dtype=torch.float64)
        self.mean.copy_(total / count)
        spread = sum(float((x - self.mean).double().square().sum()) for x in source())
        sd = (spread / (count * self.mean.numel())) ** 0.5
        self.sd.fill_(sd if sd > 0 else 1.0)

    def transform(self, x: Tensor) -> Tensor:
        """Return what the network sees of ``x``."""
        return (x - self.mean) / self.sd

    def forward(self, x: Tensor, **more: Any) -> Output:
        """Return the network's answer for centred matrices."""
        return self.model(self.transform(x), **more)


def window_of(model: nn.Module) -> int | str | Whole:
    """Return what a model reads of each series, as the ``window`` of :class:`Batches`; 0 is nothing."""
    inner = model.model if isinstance(model, CentredInputs) else model
    if getattr(inner, "whole_series", False):
        return Whole(int(getattr(inner, "crop", 0)), bool(getattr(inner, "reads_connectomes", True)))
    return getattr(inner, "series_kind", "") or int(getattr(inner, "n_volumes", 0))


def prepare(model: nn.Module, source: Source) -> None:
    """Let a model take what it needs from the training set before its first step."""
    inner, given = model, source
    if isinstance(model, CentredInputs):
        model.learn(source)
        inner, given = model.model, lambda: map(model.transform, source())
    hook = getattr(inner, "prepare", None)
    if hook is not None:
        hook(given())
