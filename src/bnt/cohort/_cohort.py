"""The Cohort: what every model, split and report starts from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort._triangle import n_rois_of, square_tensor
from bnt.cohort._triangle import square as square_of
from bnt.errors import BadInput

if TYPE_CHECKING:
    import torch

REQUIRED = ("participant_id", "site", "n_volumes", "group", "scan")
COUNTS = ("n_missing_rois", "sub_id")  # facts about the scan: never offered as something to predict
ROI_COLUMNS = ("roi", "label", "x", "y", "z", "network")
KIND_ALIASES = {"correlation": "pearson", "paper": "pearson", "released": "shrunk-z"}  # the last two: bnt 0.1.0


def canonical_kind(name: str) -> str:
    """Return the name of a connectivity kind as it is written today; names of bnt 0.1.0 are still read."""
    return KIND_ALIASES.get(name, name)


def scan_digest(row: np.ndarray) -> str:
    """Return a short digest of one subject's connectome: equal digests are the same scan."""
    return blake2b(np.ascontiguousarray(row, dtype=np.float32).tobytes(), digest_size=8).hexdigest()


def complete_participants(participants: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the columns every cohort has, in front, or say what is wrong with it."""
    table = participants.reset_index(drop=True).copy()
    if "participant_id" not in table:
        raise BadInput(f"The participants table has no participant_id column, only {list(table.columns)}.")
    table["participant_id"] = table["participant_id"].astype(str)
    repeated = table["participant_id"][table["participant_id"].duplicated()]
    if len(repeated):
        raise BadInput(
            f"Participant {repeated.iloc[0]!r} is listed twice in the participants table: keep one row a scan."
        )
    if "site" not in table:
        table["site"] = "unknown"
    table["site"] = table["site"].fillna("unknown").astype(str)
    if "n_volumes" not in table:
        table["n_volumes"] = pd.array([pd.NA] * len(table), dtype="Int64")
    table["n_volumes"] = table["n_volumes"].astype("Int64")
    if "group" not in table:
        table["group"] = table["participant_id"]
    table["group"] = table["group"].fillna(table["participant_id"]).astype(str)
    if "scan" not in table:
        table["scan"] = ""
    table["scan"] = table["scan"].fillna("").astype(str)
    front = [*REQUIRED]
    return table[front + [c for c in table.columns if c not in front]]


def complete_rois(rois: pd.DataFrame | None, n_rois: int) -> pd.DataFrame:
    """Return the ROI table with its six columns; unknown ones are empty."""
    if rois is None:
        rois = pd.DataFrame({"roi": np.arange(1, n_rois + 1)})
    if len(rois) != n_rois:
        raise BadInput(f"The ROI table has {len(rois)} rows, the connectomes have {n_rois} ROIs.")
    table = rois.reset_index(drop=True).copy()
    if "roi" not in table:
        table["roi"] = np.arange(1, n_rois + 1)
    for column in ("label", "network"):
        table[column] = table[column].fillna("").astype(str) if column in table else ""
    for column in ("x", "y", "z"):
        table[column] = pd.to_numeric(table[column], errors="coerce") if column in table else np.nan
    return table[[*ROI_COLUMNS, *(c for c in table.columns if c not in ROI_COLUMNS)]]


class Cohort:
    """Subjects x ROIs: connectomes, time series where there are any, participants, ROIs.

    Parameters
    ----------
    connectomes : array, (subjects, V(V-1)/2) or (subjects, V, V)
        Off-diagonal entries in the order of :mod:`bnt.cohort._triangle`, or symmetric matrices.
    participants : DataFrame
        One row a scan: ``participant_id`` (unique), and where known ``site``, labels, ``n_volumes`` and
        ``group`` (subjects who must stay together: a family, two scans of one person).
    rois : DataFrame, optional
        ``roi, label, x, y, z, network``.
    timeseries : Series or list of (volumes, V) arrays, optional
    kind : str
        What the entries are: ``pearson``, ``shrunk-z`` (Ledoit-Wolf, then Fisher z), ``fisher-z``,
        ``ledoit-wolf``, ``partial``, or ``unknown``.
    diagonal : float
        What stands on the diagonal of a square matrix: 1 for correlations, 0 after Fisher z.
    atlas, source, levels, findings
        Kept in ``cohort.json``: the atlas' name, where the data came from, what the codes of a label
        mean (``{"diagnosis": {"0": "control", "1": "ASD"}}``), what an import noticed.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.simulate_cohort(n_subjects=40, n_rois=20, n_sites=2, seed=0)
    >>> cohort.connectomes.shape
    (40, 190)
    >>> first_site = cohort.where(site=cohort.sites[0])
    >>> first_site.batch([0, 1]).shape
    torch.Size([2, 20, 20])
    """

    def __init__(
        self,
        connectomes: np.ndarray,
        participants: pd.DataFrame,
        rois: pd.DataFrame | None = None,
        *,
        timeseries: Series | Iterable[np.ndarray] | None = None,
        kind: str = "pearson",
        diagonal: float = 1.0,
        atlas: str = "",
        source: Mapping[str, Any] | None = None,
        levels: Mapping[str, Mapping[str, str]] | None = None,
        findings: Iterable[Mapping[str, Any]] = (),
        path: Path | None = None,
    ) -> None:
        if connectomes.ndim == 3:
            from bnt.cohort._triangle import flat_symmetric

            connectomes = flat_symmetric(connectomes, "connectomes")
        self._edges = connectomes
        self.n_rois = n_rois_of(connectomes.shape[1])
        self._table = complete_participants(participants)
        if len(self._table) != len(connectomes):
            raise BadInput(
                f"There are {len(connectomes)} connectomes and {len(self._table)} rows in the participants table."
            )
        if path is None:  # a table may come from another cohort, with the digests of other connectomes
            self._table["scan"] = [scan_digest(row) for row in connectomes]
        self.rois = complete_rois(rois, self.n_rois)
        self.kind, self.diagonal, self.atlas = canonical_kind(kind), float(diagonal), atlas
        self.source, self.levels = dict(source or {}), {k: dict(v) for k, v in (levels or {}).items()}
        self.findings = [dict(f) for f in findings]
        self.path = path
        self._rows: np.ndarray | None = None
        if timeseries is not None and not isinstance(timeseries, Series):
            parts = [np.asarray(s, dtype=np.float32) for s in timeseries]
            self._check_series(parts)
            lengths = np.array([len(p) for p in parts])
            timeseries = Series(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)
            self._table["n_volumes"] = pd.array(lengths, dtype="Int64")
        self._series = timeseries

    def _check_series(self, parts: list[np.ndarray]) -> None:
        if len(parts) != len(self._table):
            raise BadInput(f"There are {len(parts)} series and {len(self._table)} connectomes: give one a subject.")
        for who, one in zip(self._table["participant_id"], parts):
            if one.ndim != 2 or one.shape[1] != self.n_rois:
                raise BadInput(
                    f"The series of {who} has shape {one.shape}, expected (volumes, {self.n_rois}): give the series of "
                    "the ROIs that the connectomes have."
                )

    def check_finite(self, rows: np.ndarray | None = None) -> None:
        """Refuse connectomes, of some subjects or of all, that are not finite, and name the first subject."""
        rows = np.arange(len(self)) if rows is None else np.asarray(rows)
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            broken = ~np.isfinite(self.edges(part)).all(axis=1)
            if broken.any():
                raise BadInput(
                    f"The connectome of {self.ids[part[broken][0]]} contains NaN or infinity: leave the subject out, "
                    "or make the cohort again."
                )

    def with_diagonal(self, value: float) -> Cohort:
        """Return a view whose squares have this number on the diagonal."""
        view = object.__new__(Cohort)
        view.__dict__.update(self.__dict__)
        view.diagonal = float(value)
        return view

    # -- what is in it -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._table) if self._rows is None else len(self._rows)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of ``connectomes``; with indexing it lets scikit-learn cross-validate over a cohort."""
        return len(self), self._edges.shape[1]

    def __getitem__(self, key: Any) -> Cohort:
        """Return a view, as :meth:`select`; scikit-learn may add an empty column index."""
        return self.select(key[0] if isinstance(key, tuple) else key)

    @property
    def n_subjects(self) -> int:
        """Number of subjects."""
        return len(self)

    @property
    def connectomes(self) -> np.ndarray:
        """(subjects, V(V-1)/2). The memory map itself for a whole cohort, gathered rows for a selection."""
        return self._edges if self._rows is None else self.edges(np.arange(len(self)))

    @property
    def timeseries(self) -> Series | None:
        """One (volumes, V) array a subject, or None where the source has no series."""
        if self._series is None or self._rows is None:
            return self._series
        return self._series.select(self._rows)

    @property
    def participants(self) -> pd.DataFrame:
        """The participants table of the subjects selected."""
        return self._table if self._rows is None else self._table.iloc[self._rows].reset_index(drop=True)

    def _column(self, name: str) -> np.ndarray:
        values = self._table[name].to_numpy()
        return values if self._rows is None else values[self._rows]

    @property
    def ids(self) -> np.ndarray:
        """Participant ids."""
        return self._column("participant_id")

    @property
    def sites(self) -> np.ndarray:
        """Site of each subject."""
        return self._column("site")

    @property
    def groups(self) -> np.ndarray:
        """Subjects with the same group stay on one side of every split."""
        return self._column("group")

    @property
    def scans(self) -> np.ndarray:
        """Digest of each connectome: equal digests are the same scan."""
        return self._column("scan")

    def labels(self, name: str) -> np.ndarray:
        """Return a column of the participants table, without missing values, as an array.

        Parameters
        ----------
        name : str
            For example ``"diagnosis"``, ``"sex"`` or ``"age"``.
        """
        if name not in self._table:
            allowed = [c for c in self._table.columns if c not in (*REQUIRED, *COUNTS)]
            there = f"it has {', '.join(allowed)}" if allowed else "import it with a --participants table that has one"
            raise BadInput(f"{self._where()} has no label {name!r}; {there}.")
        column = self.participants[name]
        missing = column.isna().to_numpy()
        if missing.any():
            raise BadInput(
                f"Label {name!r} is missing for {missing.sum()} of {len(self)} subjects "
                f"(the first is {self.ids[missing][0]}): take those who have it with bnt select COHORT NEW --having "
                f"{name}, or cohort.having({name!r})."
            )
        if pd.api.types.is_string_dtype(column.dtype) or column.dtype == object:
            return column.to_numpy(dtype=str)
        return column.to_numpy()

    def _where(self) -> str:
        return str(self.path) if self.path is not None else "This cohort"

    # -- choosing subjects -------------------------------------------------------------------------

    def select(self, rows: Any) -> Cohort:
        """Return a view of some subjects: positions, a boolean mask, or participant ids.

        Nothing is copied: the view keeps row numbers into the same arrays.
        """
        rows = np.asarray(rows)
        if rows.dtype == bool:
            if rows.shape != (len(self),):
                raise BadInput(f"A mask of {rows.size} entries cannot select from {len(self)} subjects.")
            rows = np.flatnonzero(rows)
        elif rows.dtype.kind in "UO":
            position = {name: i for i, name in enumerate(self.ids)}
            unknown = [name for name in rows.tolist() if name not in position]
            if unknown:
                raise BadInput(f"{self._where()} has no participant {unknown[0]!r}.")
            rows = np.array([position[name] for name in rows], dtype=np.int64)
        elif rows.size and (rows.min() < -len(self) or rows.max() >= len(self)):
            raise BadInput(f"Subject {rows.max()} was asked for; {self._where()} has {len(self)}.")
        view = object.__new__(Cohort)
        view.__dict__.update(self.__dict__)
        rows = rows.astype(np.int64) % max(len(self), 1)
        view._rows = rows if self._rows is None else self._rows[rows]
        return view

    def where(self, **conditions: Any) -> Cohort:
        """Return the subjects whose columns have the given values, or one of a list of values."""
        keep = np.ones(len(self), dtype=bool)
        for name, wanted in conditions.items():
            if name not in self._table:
                raise BadInput(f"{self._where()} has no column {name!r}; it has {', '.join(self._table.columns)}.")
            wanted = list(wanted) if isinstance(wanted, list | tuple | set | np.ndarray) else [wanted]
            keep &= self.participants[name].isin(wanted).to_numpy()
        return self.select(keep)

    def having(self, *names: str) -> Cohort:
        """Return the subjects who have a value in each of the columns named."""
        for name in names:
            if name not in self._table:
                raise BadInput(f"{self._where()} has no column {name!r}; it has {', '.join(self._table.columns)}.")
        return self.select(self.participants[list(names)].notna().all(axis=1).to_numpy())

    # -- numbers for models ------------------------------------------------------------------------

    def edges(self, rows: Any) -> np.ndarray:
        """Return the connectomes of some subjects as float32 vectors, (len(rows), V(V-1)/2).

        A cohort on disk is read with ``pread``, not through the memory map: as fast when warm, and
        a pass over a cohort larger than memory leaves nothing resident.
        """
        rows = np.asarray(rows)
        if self._rows is not None:
            rows = self._rows[rows]
        if isinstance(self._edges, np.memmap) and self.path is not None:
            from bnt.cohort._store import read_rows

            return read_rows(self.path / "connectomes.npy", self._edges, rows)
        return np.asarray(self._edges[rows], dtype=np.float32)

    def square(self, rows: Any) -> np.ndarray:
        """Return the connectomes of some subjects as matrices, (len(rows), V, V) float32."""
        return square_of(self.edges(rows), self.diagonal)

    def batch(self, rows: Any, device: str | torch.device = "cpu") -> torch.Tensor:
        """Return the connectomes of some subjects as a (len(rows), V, V) float32 tensor on ``device``.

        The vectors travel to the device and are unfolded there: half the traffic.
        """
        import torch

        return square_tensor(torch.from_numpy(self.edges(rows)).to(device), self.diagonal)

    # -- disk --------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, dtype: str = "float32", overwrite: bool = False) -> Cohort:
        """Write the cohort as a folder and return it opened from there.

        Parameters
        ----------
        path : path
        dtype : {"float32", "float16"}
            float16 halves the store; the rounding error of a correlation is at most 2.5e-4.
        overwrite : bool
            Replace a cohort that is there already.
        """
        from bnt.cohort._store import save_cohort

        return save_cohort(self, path, dtype=dtype, overwrite=overwrite)

    def __repr__(self) -> str:
        sites = len(np.unique(self.sites))
        series = ", with time series" if self._series is not None else ""
        return f"Cohort({len(self)} subjects, {self.n_rois} ROIs, {sites} sites, {self.kind}{series})"


class Series(Sequence[np.ndarray]):
    """Time series of different lengths, each a view of one (sum of volumes, V) array.

    Parameters
    ----------
    stacked : array, (sum of volumes, V)
    starts : array of int, (subjects,)
        Row at which each subject's series begins.
    lengths : array of int, (subjects,)
        Number of volumes of each subject.
    """

    def __init__(self, stacked: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> None:
        self.stacked = stacked
        self.starts = starts
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        start = int(self.starts[i])
        return self.stacked[start : start + int(self.lengths[i])]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def select(self, rows: np.ndarray) -> Series:
        """Return the series of some subjects; nothing is copied."""
        return Series(self.stacked, self.starts[rows], self.lengths[rows])

    def digest(self) -> str:
        """Return a digest of the lengths and of everyone's first and last volume: cheap, and changed by
        other preprocessing, though not by an edit of a volume between them.
        """
        found = sha256(np.asarray(self.lengths, dtype=np.int64).tobytes())
        for one in self:
            found.update(np.ascontiguousarray(one[[0, -1]] if len(one) else one, dtype=np.float32).tobytes())
        return found.hexdigest()

    def __repr__(self) -> str:
        span = f"{self.lengths.min()}-{self.lengths.max()}" if len(self) else "no"
        return f"Series({len(self)} subjects, {span} volumes, {self.stacked.shape[1]} ROIs)"
