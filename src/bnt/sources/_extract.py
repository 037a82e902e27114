"""Extraction of time series from fMRIPrep images with nilearn: parallel, resumable, a few volumes in memory.

fMRIPrep writes ``sub-01_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz`` and, for surfaces,
``sub-01_task-rest_space-fsLR_den-91k_bold.dtseries.nii``, with ``_desc-brain_mask.nii.gz`` and
``_desc-confounds_timeseries.tsv`` beside them. Signals are those of ``NiftiLabelsMasker`` or ``NiftiMapsMasker`` inside
the brain mask, cleaned by ``nilearn.signal.clean`` with the confounds of ``load_confounds_strategy``: the same numbers
as nilearn called by hand, but the image is read a few volumes at a time, once for all atlases.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from bnt._words import say, track
from bnt.cohort._files import held, write_atomic
from bnt.errors import BadInput
from bnt.sources._atlas import Atlas
from bnt.sources._motion import Denoising
from bnt.sources._names import (
    Name,
    check_expanded,
    check_whole,
    expanding,
    largest,
    natural,
    one_line,
    one_variant,
    parsing,
)
from bnt.sources._scan import Content, Scan

CHUNK_BYTES = 256 << 20  # of an image in memory at a time, in each process
_VOLUME = re.compile(r"_desc-(preproc|smoothAROMAnonaggr)_bold\.nii(\.gz)?$")
_SURFACE = re.compile(r"_bold\.dtseries\.nii$")


@dataclass(frozen=True)
class Images:
    """One run as images: the BOLD file, its brain mask, and a table of confounds where fMRIPrep's are not beside it."""

    participant: str
    run: str
    file: Path
    mask: Path | None = None
    confounds: Path | None = None
    t_r: float | None = None

    def __str__(self) -> str:
        return f"{self.participant}{'_' + self.run if self.run else ''} ({self.file})"


# -- files ---------------------------------------------------------------------------------------------------


def is_bold(name: Name) -> bool:
    """Tell whether a file is a preprocessed run of fMRIPrep, as NIfTI or dense CIFTI."""
    return "sub" in name.entities and (bool(_VOLUME.search(name.file.name)) or is_dense(name))


def is_dense(name: Name) -> bool:
    """Tell whether a file is fMRIPrep's dense CIFTI."""
    return bool(_SURFACE.search(name.file.name)) and "desc" not in name.entities


def find_images(names: Sequence[Name], source: Path, cifti: bool, aroma: bool = False) -> tuple[list[Images], str]:
    """Return the runs of a folder of fMRIPrep, and their space; one standard space is chosen among several.

    Parameters
    ----------
    cifti : bool
        Take dense CIFTI files (the atlas is a CIFTI label file) in place of NIfTI.
    aroma : bool
        Take the images that ICA-AROMA has cleaned.
    """
    wanted = "smoothAROMAnonaggr" if aroma else "preproc"
    chosen = [n for n in names if is_bold(n) and is_dense(n) == cifti]
    if not cifti:
        chosen = [n for n in chosen if n.entities.get("desc") == wanted]
    if not chosen:
        what = "*_bold.dtseries.nii (the atlas is a CIFTI file)" if cifti else f"*_desc-{wanted}_bold.nii.gz"
        fix = "run fMRIPrep with ICA-AROMA, or choose another confounds_strategy" if aroma else "give its output folder"
        raise BadInput(f"{source} holds no {what} of fMRIPrep: {fix}.", "confounds_strategy" if aroma else "")
    chosen = [n for n in chosen if "echo" not in n.entities] or chosen
    spaces = sorted({n.entities.get("space", "native") for n in chosen}, key=natural)
    standard = [s for s in spaces if s.startswith(("MNI", "fsLR"))]
    if not standard and not cifti:
        raise BadInput(
            f"{source} has images in {', '.join(spaces)} only: an atlas needs a standard space; run fMRIPrep with "
            "--output-spaces MNI152NLin2009cAsym."
        )
    if len(standard) == 1 and len(spaces) > 1:
        say(f"{source}: images in {standard[0]} are taken, those in {', '.join(set(spaces) - set(standard))} are not.")
        chosen = [n for n in chosen if n.entities.get("space") == standard[0]]
    chosen = one_variant(chosen, source)
    return [_images(n) for n in chosen], standard[0] if standard else ""


def _images(name: Name) -> Images:
    mask = name.file.with_name(_VOLUME.sub("_desc-brain_mask.nii.gz", name.file.name))
    there = None if is_dense(name) or not mask.is_file() else mask
    return Images(name.participant, name.run, name.file, there)


def repetition_time(images: Images, image: Any) -> float:
    """Return the seconds between volumes: of the run itself, its JSON file, or its header."""
    if images.t_r:
        return images.t_r
    sidecar = images.file.with_name(re.sub(r"\.(dtseries\.nii|nii\.gz|nii)$", ".json", images.file.name))
    found: Any = None
    if sidecar.is_file():
        with parsing(sidecar, "a JSON file"):
            found = json.loads(sidecar.read_text()).get("RepetitionTime")
    if found is None and hasattr(image.header, "get_axis"):
        found = image.header.get_axis(0).step
    elif found is None:
        scale = {"msec": 1e-3, "usec": 1e-6}.get(image.header.get_xyzt_units()[1], 1.0)
        found = float(image.header.get_zooms()[3]) * scale
    if not 0.05 < float(found) < 30:
        raise BadInput(f"{images} has a repetition time of {found} s: write RepetitionTime into {sidecar.name}.")
    return float(found)


# -- signals -------------------------------------------------------------------------------------------------


def confounds_of(images: Images, how: Denoising) -> tuple[Any, np.ndarray | None]:
    """Return the confounds of a run (None without any) and which volumes are kept (None: all)."""
    from nilearn.interfaces.fmriprep import load_confounds, load_confounds_strategy

    if images.confounds is not None:
        return (None if how.confounds_strategy == "none" else str(images.confounds)), None
    file = str(images.file)
    if file.endswith("_bold.nii"):
        raise BadInput(f"{images.file} is not compressed: nilearn finds confounds of .nii.gz files only; gzip it.")
    more: dict[str, Any] = {"global_signal": "basic"} if how.global_signal else {}
    if how.confounds_strategy == "scrubbing":
        more |= {"fd_threshold": how.fd_threshold, "std_dvars_threshold": how.dvars_threshold}
    try:
        if how.confounds_strategy == "none":
            strategy = ("global_signal",) if how.global_signal else ()
            return load_confounds(file, strategy=strategy, **more)
        return load_confounds_strategy(file, denoise_strategy=how.confounds_strategy, **more)
    except Exception as error:  # nilearn raises nearly anything where the table is damaged
        raise BadInput(
            f"{images}: the confounds of strategy {how.confounds_strategy!r} cannot be read ({one_line(error)}): give "
            "the confounds file that fMRIPrep wrote beside it, or another confounds_strategy.",
            "confounds_strategy",
        ) from error


def extract(images: Images, atlases: Sequence[Atlas], how: Denoising) -> list[np.ndarray]:
    """Return the cleaned series of one run, (volumes kept, V) for each atlas; ROIs outside the mask are NaN."""
    import nibabel as nib

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        confounds, kept = confounds_of(images, how)
        with parsing(images.file, "an image"):
            image: Any = nib.load(
                images.file, **({} if _SURFACE.search(images.file.name) else {"keep_file_open": True})
            )
            dense = isinstance(image, nib.Cifti2Image)
        if not dense and image.ndim != 4:
            raise BadInput(f"{images} has the shape {image.shape}: give a 4D image.")
        check_expanded(images.file, float(np.prod(image.shape, dtype=np.float64)) * image.get_data_dtype().itemsize)
        for file in (images.file, images.mask):
            if file is not None:
                check_whole(file)
        t_r = repetition_time(images, image)
        raw = _dense_signals(images, image, atlases) if dense else _volume_signals(images, image, atlases)
        return [_clean(images, one, confounds, kept, t_r, how) for one in raw]


def _volume_signals(images: Images, image: Any, atlases: Sequence[Atlas]) -> list[np.ndarray]:
    """Return what each atlas reads of a 4D image, a few volumes at a time."""
    step = max(1, CHUNK_BYTES // (8 * int(np.prod(image.shape[:3]))))
    parts: list[list[np.ndarray]] = [[] for _ in atlases]
    with parsing(images.file, "an image"):
        readers = [atlas.reader(image.slicer[..., :1], images.mask) for atlas in atlases]
        for start in range(0, image.shape[3], step):
            chunk = image.slicer[..., start : start + step]
            for part, read in zip(parts, readers):
                part.append(read(chunk))
    return [np.concatenate(part) for part in parts]


def _dense_signals(images: Images, image: Any, atlases: Sequence[Atlas]) -> list[np.ndarray]:
    """Return the mean over each parcel's grayordinates, (volumes, V) for each atlas."""
    from scipy.sparse import csr_array

    weights = []
    for atlas in atlases:
        keys = dense_keys(images, image, atlas)
        position = {int(number): i for i, number in enumerate(atlas.rois["roi"])}
        rows = np.array([position.get(int(key), -1) for key in keys])
        there = np.flatnonzero(rows >= 0)
        counts = np.bincount(rows[there], minlength=len(atlas.rois))
        values = 1.0 / counts[rows[there]]
        found = csr_array((values, (rows[there], there)), shape=(len(atlas.rois), len(keys)))
        weights.append((found, counts == 0))
    step = max(1, CHUNK_BYTES // (8 * image.shape[1]))
    parts: list[list[np.ndarray]] = [[] for _ in atlases]
    with parsing(images.file, "a CIFTI file"):
        for start in range(0, image.shape[0], step):
            chunk = np.asarray(image.dataobj[start : start + step], dtype=np.float64)
            for part, (found, _) in zip(parts, weights):
                part.append((found @ chunk.T).T)
    signals = [np.concatenate(part) for part in parts]
    for one, (_, empty) in zip(signals, weights):
        one[:, empty] = np.nan
    return signals


def dense_keys(images: Images, image: Any, atlas: Atlas) -> np.ndarray:
    """Return the label of each grayordinate of a dense image; 0 where the atlas has none."""
    import nibabel as nib

    labels: Any = nib.load(atlas.file)
    theirs, mine = labels.header.get_axis(1), image.header.get_axis(1)
    values = np.asarray(labels.dataobj)[0].astype(np.int64)
    out = np.zeros(len(mine), dtype=np.int64)
    known = {name: (part, model) for name, part, model in theirs.iter_structures()}
    for name, part, model in mine.iter_structures():
        if name not in known:
            continue
        there, other = known[name]
        if name in mine.nvertices:
            if mine.nvertices[name] != theirs.nvertices.get(name):
                raise BadInput(
                    f"{images} has {mine.nvertices[name]} vertices in {name}, {atlas.file} has "
                    f"{theirs.nvertices.get(name)}: give an atlas of the same surface.",
                    "atlas",
                )
            table = np.zeros(mine.nvertices[name], dtype=np.int64)
            table[other.vertex] = values[there]
            out[part] = table[model.vertex]
        elif np.allclose(theirs.affine, mine.affine):
            found = dict(zip(map(tuple, other.voxel.tolist()), values[there].tolist()))
            out[part] = [found.get(tuple(voxel), 0) for voxel in model.voxel.tolist()]
    if not out.any():
        raise BadInput(f"{atlas.file} labels no grayordinate of {images}: give an atlas of the same space.", "atlas")
    return out


def _clean(
    images: Images, raw: np.ndarray, confounds: Any, kept: np.ndarray | None, t_r: float, how: Denoising
) -> np.ndarray:
    """Return the series without confounds and outside frequencies, each ROI standardised."""
    from nilearn.signal import clean

    seen = np.isfinite(raw).all(axis=0)
    if not seen.any():
        raise BadInput(f"{images}: no ROI of the atlas lies inside the brain mask: give an atlas of the same space.")
    try:
        found = clean(
            raw[:, seen],
            confounds=confounds,
            sample_mask=kept,
            t_r=t_r,
            low_pass=how.low_pass or None,
            high_pass=how.high_pass or None,
            detrend=True,
            standardize="zscore_sample",
        )
    except (ValueError, TypeError, np.linalg.LinAlgError) as error:
        raise BadInput(
            f"{images} cannot be cleaned ({one_line(error)}): compare its {len(raw)} volumes with its confounds, or "
            "choose another confounds_strategy.",
            "confounds_strategy",
        ) from error
    out = np.full((len(found), raw.shape[1]), np.nan, dtype=np.float32)
    out[:, seen] = found
    return out


# -- many runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extraction:
    """The runs of a source and the atlases to read them with.

    Series that :meth:`carry_out` has extracted lie in a work folder until the cohort is complete; each is kept with
    its sha256 and with a digest of what it was made from, and one that is damaged or of other settings is made again.
    """

    images: tuple[Images, ...]
    atlases: tuple[Atlas, ...]
    how: Denoising

    def scans(self, atlas: Atlas, work: Path | None = None) -> list[Scan]:
        """Return one scan per run, read from the work folder, or extracted when it is read."""
        one = replace(self, atlases=(atlas,))
        return [Scan(i.participant, i.file, partial(one.content, i, work), i.run) for i in self.images]

    def content(self, images: Images, work: Path | None) -> Content:
        """Return the series of one run for the first atlas."""
        found = None if work is None else _kept(self.place(work, images, self.atlases[0]))
        if found is None:
            (found,) = extract(images, self.atlases[:1], self.how)
        return Content(series=found, labels=self.atlases[0].labels)

    def place(self, work: Path, images: Images, atlas: Atlas) -> Path:
        """Return where a series is kept: its name tells the run, the atlas and everything it was made from."""
        from nilearn import __version__

        files = [images.file, images.mask, images.confounds, *_confound_files(images.file)]
        states = [[f.name, f.stat().st_size, f.stat().st_mtime_ns] for f in files if f is not None and f.exists()]
        made_from = [states, atlas.facts()["sha256"], asdict(self.how), images.t_r, __version__]
        digest = sha256(json.dumps(made_from).encode()).hexdigest()[:16]
        run = f"{images.participant}_{images.run}" if images.run else images.participant
        return work / f"{run}--{atlas.name}--{digest}.npy"

    def carry_out(self, work: Path, jobs: int = 0) -> None:
        """Extract what is not in the work folder yet, several runs at a time."""
        from joblib import Parallel, delayed, parallel_config

        if jobs < 0:
            raise BadInput(f"jobs is {jobs}: give 0 for one per core, or more.", "jobs")
        who = sha256(" ".join(sorted({i.participant for i in self.images})).encode()).hexdigest()[:8]
        with held(work / f".{who}.lock", wait=5.0):  # imports of other people may share the folder
            waiting = [i for i in self.images if any(_kept(self.place(work, i, a)) is None for a in self.atlases)]
            done = len(self.images) - len(waiting)
            if done:
                say(f"{done} of {len(self.images)} runs were extracted before and are used.")
            n_jobs = min(jobs or len(os.sched_getaffinity(0)), max(1, len(waiting)))
            if n_jobs == 1:
                made: Iterator[str] = (self.one(work, i) for i in waiting)
            else:
                with parallel_config(backend="loky", inner_max_num_threads=1):
                    made = Parallel(n_jobs, return_as="generator_unordered")(
                        delayed(self.one)(work, i, largest()) for i in waiting
                    )
            for _ in track(made, "Extracting series", len(waiting)):
                pass

    def one(self, work: Path, images: Images, max_expanded: float | None = None) -> str:
        """Extract one run for all atlases and keep the series; return the participant."""
        with expanding(max_expanded or largest()):
            found = extract(images, self.atlases, self.how)
        for atlas, series in zip(self.atlases, found):
            buffer = BytesIO()
            np.save(buffer, series, allow_pickle=False)
            data, file = buffer.getvalue(), self.place(work, images, atlas)
            write_atomic(file, data)
            write_atomic(file.with_suffix(".sha256"), sha256(data).hexdigest())
        return images.participant


def _confound_files(file: Path) -> list[Path]:
    """Return the confounds that fMRIPrep wrote for a run, whatever its space."""
    head = re.sub(
        r"(_space-[A-Za-z0-9]+)?(_res-[A-Za-z0-9]+)?(_den-[A-Za-z0-9]+)?(_desc-[A-Za-z0-9]+)?_bold\..*$", "", file.name
    )
    return sorted(file.parent.glob(f"{head}_desc-confounds_*.tsv"))


def _kept(file: Path) -> np.ndarray | None:
    """Return a series of the work folder; None where there is none, or a damaged one."""
    note = file.with_suffix(".sha256")
    if not (file.is_file() and note.is_file()):
        return None
    data = file.read_bytes()
    if sha256(data).hexdigest() != note.read_text().strip():
        return None
    return np.load(BytesIO(data), allow_pickle=False)
