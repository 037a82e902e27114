"""The Cohort: the data that every model, split and report reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bnt.cohort._beside import atlas_folder, read_people, write_together
from bnt.cohort._files import readable
from bnt.cohort._scans import Scans, Series
from bnt.cohort._store import (
    COUNTS,
    DESCRIBED,
    REQUIRED,
    CohortWriter,
    arrays_untouched,
    canonical_kind,
    complete_participants,
    complete_rois,
    open_array,
    read_manifest,
    read_rois,
    read_rows,
    read_scans,
)
from bnt.cohort._triangle import flat_symmetric, n_edges, n_rois_of, square_tensor
from bnt.cohort._triangle import square as square_of
from bnt.errors import BadInput

if TYPE_CHECKING:
    import torch

EdgeChange = Callable[[np.ndarray, pd.DataFrame], np.ndarray]  # (n, E) float32 edges and their rows of participants.tsv


class Cohort:
    """The data of a group of subjects: connectomes, time series if available, participants and ROIs.

    Parameters
    ----------
    connectomes : array, (subjects, V(V-1)/2) or (subjects, V, V)
        Off-diagonal entries in the order of :mod:`bnt.cohort._triangle`, or symmetric matrices.
    participants : DataFrame
        One row per scan: ``participant_id`` (unique) and, if known, ``site``, labels, ``n_volumes`` and ``family``.
        Subjects of one family stay together in every split (twins, two scans of one person).
    rois : DataFrame, optional
        ``roi, label, x, y, z, network``.
    timeseries : Series or list of (volumes, V) arrays, optional
    kind : str
        Kind of connectome: ``pearson``, ``shrunk-z`` (Ledoit-Wolf, then Fisher z), ``fisher-z``, ``ledoit-wolf``,
        ``partial``, or ``unknown``.
    diagonal : float
        Value on the diagonal of a square matrix: 1 for correlations, 0 after Fisher z.
    atlas, source, levels, findings
        Stored in ``cohort.json``: the name of the atlas, the source of the data, the meaning of label codes
        (``{"diagnosis": {"0": "control", "1": "ASD"}}``), and notes from the import.
    path : path, optional
        The folder that the arrays are mapped from.

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
            connectomes = flat_symmetric(connectomes, "connectomes")
        self._edges = connectomes
        self.n_rois = n_rois_of(connectomes.shape[1])
        self._table = complete_participants(participants)
        if len(self._table) != len(connectomes):
            raise BadInput(f"There are {len(connectomes)} connectomes and {len(self._table)} rows of participants.")
        self.rois = complete_rois(rois, self.n_rois)
        self.kind, self.diagonal, self.atlas = canonical_kind(kind), float(diagonal), atlas
        self.source, self.levels = dict(source or {}), {k: dict(v) for k, v in (levels or {}).items()}
        self.findings = [dict(f) for f in findings]
        self.path = path
        self.atlases: tuple[str, ...] = (atlas,)
        self._rows: np.ndarray | None = None
        self.edge_changes: tuple[EdgeChange, ...] = ()
        self._changes_elsewhere: dict[str, EdgeChange] = {}  # by atlas
        if timeseries is not None and not isinstance(timeseries, Series):
            parts = [np.asarray(s, dtype=np.float32) for s in timeseries]
            self._check_series(parts)
            lengths = np.array([len(p) for p in parts])
            timeseries = Series(np.concatenate(parts), np.cumsum(lengths) - lengths, lengths)
            self._table["n_volumes"] = pd.array(lengths, dtype="Int64")
        self._series = timeseries
        self._scans = Scans(connectomes.shape[1], self.edges, len(connectomes), timeseries)

    def _check_series(self, parts: list[np.ndarray]) -> None:
        if len(parts) != len(self._table):
            raise BadInput(f"There are {len(parts)} series and {len(self._table)} connectomes: give one per subject.")
        for who, one in zip(self._table["participant_id"], parts):
            if one.ndim != 2 or one.shape[1] != self.n_rois:
                raise BadInput(
                    f"The series of {who} has shape {one.shape}, the connectomes ask for (volumes, {self.n_rois})."
                )

    def check_finite(self, rows: np.ndarray | None = None) -> None:
        """Refuse connectomes, of some subjects or of all, that are not finite, and name the first subject."""
        rows = np.arange(len(self)) if rows is None else np.asarray(rows)
        for start in range(0, len(rows), 256):
            part = rows[start : start + 256]
            broken = ~np.isfinite(self.edges(part)).all(axis=1)
            if broken.any():
                who = self.ids[part[broken][0]]
                raise BadInput(
                    f"The connectome of {who} contains NaN or infinity: leave it out, or make the cohort again."
                )

    def with_diagonal(self, value: float) -> Cohort:
        """Return a view whose squares have this number on the diagonal."""
        return self._view(diagonal=float(value))

    def with_edges(self, change: EdgeChange) -> Cohort:
        """Return a view with edges changed by ``change(edges, people)``, without series, which it does not change."""
        return self._view(edge_changes=(*self.edge_changes, change), _series=None)

    def with_edges_of(self, changes: Mapping[str, EdgeChange]) -> Cohort:
        """Return a view with edges changed in each atlas named, whichever of them is read."""
        return self.with_edges(changes[self.atlas])._view(_changes_elsewhere=dict(changes))

    def _view(self, **changed: Any) -> Cohort:
        view = object.__new__(Cohort)
        view.__dict__.update(self.__dict__ | changed)
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
        return self._edges if self._rows is None and not self.edge_changes else self.edges(np.arange(len(self)))

    @property
    def timeseries(self) -> Series | None:
        """One (volumes, V) array per subject, or None where the source has no series."""
        return self._series if self._series is None or self._rows is None else self._series.select(self._rows)

    @property
    def participants(self) -> pd.DataFrame:
        """The participants table of the subjects selected."""
        return self._table if self._rows is None else self._table.iloc[self._rows].reset_index(drop=True)

    def _column(self, name: str) -> np.ndarray:
        return self._some(self._table[name].to_numpy())

    def _some(self, values: np.ndarray) -> np.ndarray:
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
    def families(self) -> np.ndarray:
        """Subjects with the same family stay on one side of every split."""
        return self._column("family")

    @property
    def scans(self) -> np.ndarray:
        """Name of each subject's scan: connectomes with the same name are equal, or nearly so."""
        return self._some(self._scans.names)

    @property
    def digests(self) -> np.ndarray:
        """Digest of each connectome: equal digests are the same numbers."""
        return self._some(self._scans.digests)

    @property
    def series_digests(self) -> np.ndarray | None:
        """Digest of each series, of all its volumes; None where the source has no series."""
        return None if self._scans.series is None else self._some(self._scans.series)

    @property
    def identities(self) -> pd.DataFrame:
        """What the leak guard goes by: ``participant_id``, ``family`` and ``scan``."""
        return pd.DataFrame({"participant_id": self.ids, "family": self.families, "scan": self.scans})

    def changed(self, *, read: bool = False) -> np.ndarray:
        """Return the ids of subjects whose arrays are not those that the cohort was written with.

        Parameters
        ----------
        read : bool
            Read every array again. Without it only those are read whose size or time is not the recorded one.
        """
        if read:
            self._scans.read_again()
        return self._table["participant_id"].to_numpy()[self._scans.changed()]

    def labels(self, name: str) -> np.ndarray:
        """Return a column of the participants table, without missing values, as an array.

        Parameters
        ----------
        name : str
            For example ``"diagnosis"``, ``"sex"`` or ``"age"``.
        """
        if name not in self._table:
            allowed = [c for c in self._table.columns if c not in (*REQUIRED, *COUNTS)]
            there = f"it has {', '.join(allowed)}" if allowed else "import it with a participants table that has one"
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
        """Return a view of some subjects: positions, a boolean mask, or participant ids; nothing is copied."""
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
        rows = rows.astype(np.int64) % max(len(self), 1)
        return self._view(_rows=rows if self._rows is None else self._rows[rows])

    def where(self, **conditions: Any) -> Cohort:
        """Return the subjects whose columns have the given values, or one of a list of values."""
        keep = np.ones(len(self), dtype=bool)
        self._check_columns(conditions)
        for name, wanted in conditions.items():
            wanted = list(wanted) if isinstance(wanted, list | tuple | set | np.ndarray) else [wanted]
            keep &= self.participants[name].isin(wanted).to_numpy()
        return self.select(keep)

    def having(self, *names: str) -> Cohort:
        """Return the subjects who have a value in each of the columns named."""
        self._check_columns(names)
        return self.select(self.participants[list(names)].notna().all(axis=1).to_numpy())

    def _check_columns(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._table:
                raise BadInput(f"{self._where()} has no column {name!r}; it has {', '.join(self._table.columns)}.")

    # -- numbers for models ------------------------------------------------------------------------

    def edges(self, rows: Any) -> np.ndarray:
        """Return the connectomes of some subjects as float32 vectors, (len(rows), V(V-1)/2).

        A cohort on disk is read with ``pread``: a pass over one larger than memory leaves nothing resident.
        """
        rows = np.asarray(rows)
        if self._rows is not None:
            rows = self._rows[rows]
        if isinstance(self._edges, np.memmap) and self.path is not None:
            found = read_rows(self.path / "connectomes.npy", self._edges, rows)
        else:
            found = np.asarray(self._edges[rows], dtype=np.float32)
        for change in self.edge_changes:
            found = change(found, self._table.iloc[rows])
        return found

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

    def with_atlas(self, name: str) -> Cohort:
        """Return the same subjects in another atlas of the cohort; ``atlases`` lists them."""
        if name == self.atlas:
            return self
        if self.path is None or name not in self.atlases:
            there = ", ".join(filter(None, self.atlases)) or "one without a name"
            raise BadInput(f"{self._where()} has no atlas {name!r}; it has {there}.", "atlas")
        other = load_cohort(self.path, name)
        if name in self._changes_elsewhere:
            other = other.with_edges_of(self._changes_elsewhere)
        return other if self._rows is None else other.select(self._rows)

    def save(self, path: str | Path, *, dtype: str = "float32", overwrite: bool = False) -> Cohort:
        """Write the cohort, with all its atlases, as a folder and return it opened from there.

        Parameters
        ----------
        path : path
        dtype : {"float32", "float16"}
            float16 halves the store; the rounding error of a correlation is at most 2.5e-4.
        overwrite : bool
            Replace a cohort that is there already.
        """
        if len(self.atlases) > 1:
            makers = {name: partial(self.with_atlas(name)._save, dtype=dtype) for name in self.atlases}
            write_together(Path(path), makers, overwrite=overwrite)
            return load_cohort(path, self.atlas)
        self._save(path, dtype=dtype, overwrite=overwrite)
        return load_cohort(path)

    def _save(self, path: str | Path, *, dtype: str, overwrite: bool = False) -> None:
        with CohortWriter(path, self.n_rois, dtype=dtype, overwrite=overwrite) as writer:
            series = self.timeseries
            for start in range(0, len(self), 256):
                rows = np.arange(start, min(start + 256, len(self)))
                writer.append(self.edges(rows), None if series is None else [series[i] for i in rows])
            writer.finish(self.participants, self.rois, **{name: getattr(self, name) for name in DESCRIBED})

    def __repr__(self) -> str:
        n, without = len({*self.sites} - {"unknown"}), int((self.sites == "unknown").sum())
        sites = f"{n} site{'s' * (n != 1)}{f' ({without} without)' if without else ''}" if n else "no sites"
        series = ", with time series" if self._series is not None else ""
        return f"Cohort({len(self)} subjects, {self.n_rois} ROIs, {sites}, {self.kind}{series})"


def load_cohort(path: str | Path, atlas: str | None = None) -> Cohort:
    """Open a cohort folder. Arrays are memory-mapped, so a cohort of any size opens at once.

    Parameters
    ----------
    path : path
        A folder made by ``bnt simulate``, ``bnt fetch``, ``bnt import`` or :meth:`Cohort.save`.
    atlas : str, optional
        The atlas to open if the cohort has several; the first by default.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")  # a folder made by bnt simulate cohort
    >>> cohort.connectomes.shape
    (40, 190)
    """
    path = Path(path)
    manifest = read_manifest(path)
    if atlas is not None:
        path = atlas_folder(path, manifest, atlas)
        manifest = read_manifest(path)
    n_rois, n_subjects = int(manifest["n_rois"]), int(manifest["n_subjects"])
    edges = open_array(path / "connectomes.npy", n_edges(n_rois))
    recorded = read_scans(path, manifest)
    participants = read_people(path, recorded)
    rois = read_rois(path, manifest)
    if not len(edges) == len(participants) == n_subjects:
        raise BadInput(
            f"{path} has {len(edges)} connectomes, {len(participants)} participants and {n_subjects} in cohort.json."
        )
    series = None
    if "timeseries.npy" in manifest["sha256"]:
        stacked = open_array(path / "timeseries.npy", n_rois)
        lengths = participants["n_volumes"].to_numpy(dtype=np.int64)
        if lengths.sum() != len(stacked):
            raise BadInput(
                f"{path / 'timeseries.npy'} has {len(stacked)} volumes, participants.tsv counts {lengths.sum()}."
            )
        series = Series(stacked, np.cumsum(lengths) - lengths, lengths)
    with readable(path / "cohort.json", "write the cohort again"):
        described = {name: manifest[name] for name in DESCRIBED}
        cohort = Cohort(edges, participants, rois, timeseries=series, path=path, **described)
        cohort.atlases = tuple(manifest.get("atlases") or [cohort.atlas])
    if recorded is not None:
        trusted = arrays_untouched(path)
        cohort._scans = Scans(edges.shape[1], cohort.edges, len(edges), series, recorded, trusted)
    return cohort
