"""Motion: the settings of denoising, and motion and coverage from the files that pipelines write beside series.

========================== ================================================================== =====================
pipeline                   file                                                               what is read
========================== ================================================================== =====================
XCP-D (0.1 to 26.x)        ``*_desc-linc_qc.tsv`` or ``.csv`` (before: ``*_qc.csv``)          mean_fd, retained volumes
XCP-D                      ``*_motion.tsv``, ``*_desc-filtered_motion.tsv``                   framewise_displacement
XCP-D                      ``*_outliers.tsv``                                                 1 for censored volumes
XCP-D                      ``*_stat-coverage_bold.tsv``, before ``*_coverage.tsv``            share of each parcel
fMRIPrep                   ``*_desc-confounds_timeseries.tsv``, ``*_regressors.tsv``          framewise_displacement
C-PAC                      ``*_desc-summary_motion.tsv``, ``*power_params*``                  mean FD (Power)
C-PAC                      ``*_framewise-displacement-power.1D`` and the like, ``*_motion.tsv`` FD of every volume
========================== ================================================================== =====================

``mean_fd`` is the mean framewise displacement (Power) over all volumes, ``n_retained`` how many were not censored,
``coverage`` the mean over parcels of the share of a parcel that the scan covers. The command line imports this module:
it loads no library of numbers before it is used.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

from bnt._words import say
from bnt.errors import BadInput
from bnt.sources._names import RUN_KEYS, Name, list_files, parsing

if TYPE_CHECKING:
    import pandas as pd

    from bnt.sources._scan import Scan


@dataclass(frozen=True)
class Denoising:
    """How time series of fMRIPrep images are denoised; see :func:`bnt.import_cohort`.

    Examples
    --------
    >>> from bnt.sources import Denoising
    >>> Denoising("scrubbing", fd_threshold=0.3).described()
    'confounds scrubbing, volumes above FD 0.3 mm or DVARS 1.5 dropped, low-pass 0.1 Hz'
    """

    confounds_strategy: Literal["simple", "scrubbing", "compcor", "ica_aroma", "none"] = "simple"
    """nilearn's strategy for fMRIPrep's confounds: simple, scrubbing, compcor, ica_aroma, or none. Non-steady-state
    volumes are always dropped."""
    global_signal: bool = False
    """Remove the global signal too."""
    fd_threshold: float = 0.5
    """Of scrubbing: framewise displacement, in mm, above which a volume is dropped."""
    dvars_threshold: float = 1.5
    """Of scrubbing: standardised DVARS above which a volume is dropped."""
    low_pass: float = 0.1
    """Remove what is faster than this, in Hz; 0 keeps it."""
    high_pass: float = 0.0
    """Remove what is slower than this, in Hz; 0 leaves it to the cosines among fMRIPrep's confounds."""

    def __post_init__(self) -> None:
        allowed = get_args(get_type_hints(Denoising)["confounds_strategy"])
        if self.confounds_strategy not in allowed:
            raise BadInput(
                f"confounds_strategy is {self.confounds_strategy!r}: choose one of {', '.join(allowed)}.",
                "confounds_strategy",
            )
        for name in ("fd_threshold", "dvars_threshold", "low_pass", "high_pass"):
            if not getattr(self, name) >= 0:
                raise BadInput(f"{name} is {getattr(self, name)}: give 0 or more.", name)
        if self.low_pass and self.high_pass >= self.low_pass:
            raise BadInput(
                f"high_pass is {self.high_pass} and low_pass is {self.low_pass}: give high < low.", "high_pass"
            )

    def described(self) -> str:
        """Return what is done, in words."""
        words = [f"confounds {self.confounds_strategy}"]
        words += ["global signal"] if self.global_signal else []
        if self.confounds_strategy == "scrubbing":
            words.append(f"volumes above FD {self.fd_threshold:g} mm or DVARS {self.dvars_threshold:g} dropped")
        words += [f"{n} {v:g} Hz" for n, v in (("low-pass", self.low_pass), ("high-pass", self.high_pass)) if v]
        return ", ".join(words)


SIMPLE = Denoising()


COLUMNS = ("mean_fd", "n_retained", "coverage")
_FD = re.compile(r"framewise_?displacement(_?power)?|fd(_power)?|meanfd(_power)?|mean_fd", re.IGNORECASE)


def _numbers(file: Path) -> pd.DataFrame:
    """Read a table of quality measures; a file without a header has one column of framewise displacement."""
    import pandas as pd

    with parsing(file, "a table of motion or quality"):
        separator = "," if file.suffix == ".csv" else r"\s+" if ".1D" in file.name or file.suffix == ".txt" else "\t"
        text = file.read_text(encoding="utf-8-sig").strip()
        first = re.split(r"[,\s]+", text.partition("\n")[0].lstrip("#").strip())[0]
        bare_numbers = bool(re.fullmatch(r"[+-]?\d*\.?\d+([eE][+-]?\d+)?|nan", first))
        return pd.read_csv(
            file,
            sep="," if separator != "," and "," in text and "\t" not in text else separator,
            header=None if bare_numbers else 0,
            na_values=["n/a"],
            engine="python",
        )


def _displacement(table: pd.DataFrame) -> pd.Series | None:
    """Return the framewise displacement of Power of every row, unfiltered where both are there; of Jenkinson else."""
    import pandas as pd

    if len(table.columns) == 1 and not isinstance(table.columns[0], str):
        return pd.to_numeric(table.iloc[:, 0], errors="coerce")
    names = {re.sub(r"[^a-z_]+", "_", str(c).strip().lower()).strip("_"): c for c in table.columns}
    for known in names:
        if _FD.fullmatch(known):
            return pd.to_numeric(table[names[known]], errors="coerce")
    other = next((c for n, c in names.items() if "jenkinson" in n and ("displacement" in n or "fd" in n)), None)
    return None if other is None else pd.to_numeric(table[other], errors="coerce")


def _of_summary(file: Path) -> dict[str, Any]:
    """Return what one row of quality measures says: XCP-D's ``qc`` files, C-PAC's summaries."""
    table = _numbers(file)
    found: dict[str, Any] = {}
    for column, value in table.iloc[0].items():
        name = str(column).strip().lower()
        if re.fullmatch(r"mean_?fd(_power)?", name):
            found["mean_fd"] = float(value)
        elif name == "num_retained_volumes":
            found["n_retained"] = int(value)
    return found


def _of_volumes(file: Path) -> dict[str, Any]:
    """Return the mean of a file with one row of motion per volume; the first volume's is missing or 0."""
    import numpy as np

    displacement = _displacement(_numbers(file))
    if displacement is None or not displacement.notna().any():
        return {}
    return {"mean_fd": float(np.nanmean(displacement))}


def _of_outliers(file: Path) -> dict[str, Any]:
    """Return how many volumes XCP-D kept: zeros of its ``outliers`` files."""
    table = _numbers(file)
    column = next((c for c in table if str(c).startswith("framewise_displacement")), None)
    return {} if column is None else {"n_retained": int((table[column] == 0).sum())}


def _of_coverage(file: Path) -> dict[str, Any]:
    """Return the mean coverage of the parcels, given in one row or in one column."""
    import numpy as np

    table = _numbers(file)
    values = table.select_dtypes("number").to_numpy(dtype=float)
    values = values[np.isfinite(values)]
    return {"coverage": float(values.mean())} if values.size and values.min() >= 0 and values.max() <= 1 else {}


def _reader(name: Name) -> tuple[int, Callable[[Path], dict[str, Any]]] | None:
    """Return how to read a file, and its rank: where two give the same measure, the lower rank is taken."""
    lower, suffix = name.file.name.lower(), name.suffix.lower()
    if name.extension not in ("tsv", "csv", "1D", "txt"):
        return None
    if suffix == "qc" or "power_params" in lower or "power-params" in lower or "powerparams" in lower:
        return 0, _of_summary
    if suffix == "motion":
        return (0, _of_summary) if name.entities.get("desc") == "summary" else (1, _of_volumes)
    if suffix == "outliers":
        return 0, _of_outliers
    if suffix == "coverage" or (suffix == "bold" and name.entities.get("stat") == "coverage"):
        return 0, _of_coverage
    displaced = re.search(r"framewise[-_]?displacement", lower)
    if displaced or (suffix in ("timeseries", "regressors") and name.entities.get("desc") == "confounds"):
        return (2, _of_volumes) if "jenkinson" in lower else (1, _of_volumes)
    return None


def _key(name: Name) -> tuple[str, ...]:
    return (name.participant, name.entities.get("task", ""), *(name.entities.get(k, "") for k in RUN_KEYS))


def find_quality(scans: Sequence[Scan], source: Path) -> list[Scan]:
    """Return the scans with motion and coverage as columns, where files beside them tell.

    A column of that name in the participants table is kept, and what the files say is left out; that is said.
    """
    files: dict[tuple[str, ...], list[tuple[int, Name, Callable[[Path], dict[str, Any]]]]] = defaultdict(list)
    for name in list_files(source):
        found = _reader(name)
        if found is not None:
            files[_key(name)].append((found[0], name, found[1]))
    out, counts = [], dict.fromkeys(COLUMNS, 0)
    taken = {c for c in COLUMNS if any(c in scan.columns for scan in scans)}
    for scan in scans:
        name = Name(scan.file, source)
        quality: dict[str, Any] = {}
        for _, other, read in sorted(files.get(_key(name), []), key=lambda one: (one[0], str(one[1].file))):
            if other.atlas and name.atlas and other.atlas != name.atlas:
                continue
            quality = {**read(other.file), **quality}
        quality = {c: quality[c] for c in COLUMNS if c in quality and c not in taken}
        for column in quality:
            counts[column] += 1
        out.append(replace(scan, columns={**scan.columns, **quality}))
    if any(counts.values()):
        listed = ", ".join(f"{c} of {n} scans" for c, n in counts.items() if n)
        say(f"{source.name}: read {listed} from the files of the pipeline.")
    if taken and files:
        say(f"{source.name}: {', '.join(sorted(taken))} of the participants table is kept, the pipeline's is not read.")
    return out
