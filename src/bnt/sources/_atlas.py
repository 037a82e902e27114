"""Atlases (label image, maps or CIFTI label file): their ROIs, and extraction of signals from an image.

An atlas is given as a file, with a table of its ROIs beside it where there is one, or by a name that nilearn
(``schaefer_2018:400``) or TemplateFlow (``templateflow:Schaefer2018:400Parcels7Networks``) fetches.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from bnt._words import say
from bnt.cohort import Cohort
from bnt.cohort._store import file_sha256
from bnt.errors import BadInput
from bnt.sources._names import check_whole, one_line, parsing
from bnt.sources._roi_tables import bare_stem, cifti_rois, described, read_lut, table_beside, tidy

if TYPE_CHECKING:
    from nibabel import Nifti1Image

IMAGES = (".nii.gz", ".nii")
# name -> nilearn's function, the parameter that follows a colon, and what else it is given
FETCHERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "schaefer_2018": ("fetch_atlas_schaefer_2018", "n_rois", {"resolution_mm": 2}),
    "aal": ("fetch_atlas_aal", "version", {}),
    "harvard_oxford": ("fetch_atlas_harvard_oxford", "atlas_name", {"atlas_name": "cort-maxprob-thr25-2mm"}),
    "juelich": ("fetch_atlas_juelich", "atlas_name", {"atlas_name": "maxprob-thr25-2mm"}),
    "basc": ("fetch_atlas_basc_multiscale_2015", "resolution", {"resolution": 122}),
    "difumo": ("fetch_atlas_difumo", "dimension", {}),
    "msdl": ("fetch_atlas_msdl", "", {}),
    "smith_2009": ("fetch_atlas_smith_2009", "dimension", {"dimension": 20}),
    "destrieux_2009": ("fetch_atlas_destrieux_2009", "", {}),
    "yeo_2011": ("fetch_atlas_yeo_2011", "n_networks", {}),
    "talairach": ("fetch_atlas_talairach", "level_name", {"level_name": "ba"}),
    "pauli_2017": ("fetch_atlas_pauli_2017", "", {"atlas_type": "deterministic"}),
}
Form = Literal["labels", "maps", "cifti"]
Reader = Callable[["Nifti1Image"], np.ndarray]


@dataclass(frozen=True)
class Atlas:
    """An atlas that scans are read with.

    Attributes
    ----------
    name : str
        Safe as part of a folder's name.
    form : {"labels", "maps", "cifti"}
        A label image, a 4D image of maps, or a CIFTI label file.
    file : path
    rois : DataFrame
        ``roi`` (the number in the image, or the map's position), ``label``, ``x``, ``y``, ``z``, ``network``, in the
        order of the columns of the series.
    """

    name: str
    form: Form
    file: Path
    rois: pd.DataFrame = field(compare=False)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the ROIs; none where the atlas has no table."""
        return tuple(self.rois["label"]) if self.rois["label"].ne("").all() else ()

    def facts(self) -> dict[str, str]:
        """Return what a cohort keeps about its atlas."""
        return {"file": str(self.file.resolve()), "form": self.form, "sha256": file_sha256(self.file)}

    def image(self) -> Nifti1Image:
        """Return the label image, (X, Y, Z), or the maps, (X, Y, Z, V)."""
        from nilearn.image import load_img

        with parsing(self.file, "an atlas image"):
            found = load_img(self.file)
            if found.ndim == 4 and found.shape[3] == 1:  # nilearn's Yeo atlas
                found = found.slicer[..., 0]
        return found

    def reader(self, like: Nifti1Image, mask: Path | None) -> Reader:
        """Return what reads (volumes, V) signals of images that have the grid of ``like``; NaN outside the mask.

        It is nilearn's masker without cleaning: the atlas goes to the grid of the images, and an ROI's signal is the
        mean over its voxels, or the least-squares weight of its map, inside the mask.
        """
        from nilearn.image import resample_to_img
        from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker

        options: dict[str, Any] = {
            "mask_img": None if mask is None else str(mask),
            "resampling_target": "data",
            "standardize": None,
            "detrend": False,
            "reports": False,
        }
        if self.form == "maps":
            masker = NiftiMapsMasker(self.image(), **options).fit(like)
            maps = resample_to_img(
                self.image(), like, interpolation="continuous", copy_header=True, force_resample=True
            )
            inside = np.ones(like.shape[:3], dtype=bool)
            if mask is not None:
                there = resample_to_img(str(mask), like, interpolation="nearest", copy_header=True, force_resample=True)
                inside = np.asarray(there.dataobj).astype(bool)
            kept = np.asarray(maps.dataobj)[inside].any(axis=0)
            return partial(_spread, masker, lambda: np.flatnonzero(kept), len(self.rois))
        masker = NiftiLabelsMasker(self.image(), **options).fit(like)
        position = {int(number): i for i, number in enumerate(self.rois["roi"])}

        def columns() -> np.ndarray:
            found = {k: v for k, v in masker.region_ids_.items() if k != "background"}
            return np.array([position[int(found[k])] for k in sorted(found)], dtype=np.int64)

        return partial(_spread, masker, columns, len(self.rois))


def _spread(masker: Any, columns: Callable[[], np.ndarray], n_rois: int, image: Nifti1Image) -> np.ndarray:
    """Return a masker's signals with a column per ROI: NaN for those that the mask has removed."""
    found = np.atleast_2d(masker.transform(image))
    where = columns()
    if len(where) != found.shape[1]:
        raise BadInput(f"nilearn read {found.shape[1]} ROIs and {len(where)} are inside the mask: give another atlas.")
    out = np.full((len(found), n_rois), np.nan, dtype=found.dtype)
    out[:, where] = found
    return out


# -- from a word to an atlas -------------------------------------------------------------------------------


def find_atlas(word: str, *, space: str = "", data_dir: str | Path | None = None) -> Atlas:
    """Return the atlas that a word means: a file, or a name to fetch; ``NAME=`` before it sets the name.

    Parameters
    ----------
    word : str
        ``atlas.nii.gz``, ``schaefer_2018:400``, ``templateflow:Schaefer2018:400Parcels7Networks``,
        ``mine=/data/atlas.dlabel.nii``.
    space : str
        Of the scans, such as ``MNI152NLin2009cAsym``, which TemplateFlow is asked for.
    data_dir : path, optional
        Where nilearn keeps its data sets.
    """
    name, equals, given = word.partition("=")
    name, given = (name, given) if equals else ("", word)
    file = Path(given).expanduser()
    if file.exists() or given.lower().endswith(IMAGES) or "/" in given:
        return _from_file(file, name)
    head = given.partition(":")[0]
    if head == "templateflow":
        return _from_templateflow(given, name, space or "MNI152NLin2009cAsym")
    if head not in FETCHERS:
        known = ", ".join(FETCHERS)
        raise BadInput(
            f"Unknown atlas {given!r}: give an image (.nii.gz, .dlabel.nii), one of {known} (with an option after "
            "a colon, schaefer_2018:400), or templateflow:NAME:DESC.",
            "atlas",
        )
    return _from_nilearn(given, name, data_dir)


def is_atlas(word: str) -> bool:
    """Tell whether a word of ``--atlas`` is an image or a name to fetch, not the name of an atlas in file names."""
    given = word.partition("=")[2] or word
    head = given.partition(":")[0]
    return Path(given).expanduser().is_file() or given.lower().endswith(IMAGES) or head in (*FETCHERS, "templateflow")


def safe_name(text: str) -> str:
    """Return a name that can be part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-.") or "atlas"


def _from_file(file: Path, name: str = "", table: pd.DataFrame | None = None, surfaces: tuple[Path, ...] = ()) -> Atlas:
    """Read an atlas file, with the table beside it unless one is given."""
    import nibabel as nib

    check_whole(file)
    with parsing(file, "an atlas image (.nii.gz or .dlabel.nii)"):
        image: Any = nib.load(file)
        shape = tuple(n for i, n in enumerate(image.shape) if i < 3 or n > 1)
        cifti = isinstance(image, nib.Cifti2Image)
    stem = bare_stem(file)
    parts = dict(re.findall(r"(atlas|seg|desc)-([A-Za-z0-9]+)", stem))
    short = (
        "-".join(parts[k] for k in ("atlas", "seg", "desc") if k in parts) if {"atlas", "seg"} & set(parts) else stem
    )
    name = safe_name(name or short)
    if cifti:
        return Atlas(name, "cifti", file, cifti_rois(file, table, surfaces))
    beside = table if table is not None else table_beside(file)
    if len(shape) == 4:
        rois = pd.DataFrame({"roi": np.arange(1, shape[3] + 1)})
        atlas = Atlas(name, "maps", file, described(rois, beside, file))
        with parsing(file, "an atlas image"):
            return _placed(atlas, _map_coordinates(atlas.image()))
    if len(shape) != 3:
        raise BadInput(f"{file} has the shape {shape}: give a 3D image of labels or a 4D image of maps.", "atlas")
    with parsing(file, "an atlas image"):
        values = np.asarray(image.dataobj)
    numbers = np.unique(values[np.isfinite(values)])
    if (numbers != np.round(numbers)).any() or (numbers < 0).any():
        raise BadInput(
            f"{file} is a 3D image with values such as {numbers[numbers != np.round(numbers)][:1] or numbers[:1]}: a "
            "label image has whole numbers, 0 outside; a map image has a fourth dimension.",
            "atlas",
        )
    numbers = numbers[numbers > 0].astype(np.int64)
    if len(numbers) < 2:
        raise BadInput(f"{file} has {len(numbers)} labels: give an atlas of two or more ROIs.", "atlas")
    atlas = Atlas(name, "labels", file, described(pd.DataFrame({"roi": numbers}), beside, file))
    with parsing(file, "an atlas image"):
        return _placed(atlas, label_coordinates(atlas.image(), numbers))


def label_coordinates(image: Nifti1Image, numbers: np.ndarray) -> np.ndarray:
    """Return the place of each label, (V, 3): nilearn's centre of its largest piece."""
    from nilearn.plotting import find_parcellation_cut_coords

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        places, names = find_parcellation_cut_coords(image, return_label_names=True)
    found = {int(number): place for number, place in zip(names, places)}
    return np.array([found.get(int(number), np.full(3, np.nan)) for number in numbers])


def _map_coordinates(image: Nifti1Image) -> np.ndarray:
    from nilearn.plotting import find_probabilistic_atlas_cut_coords

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(find_probabilistic_atlas_cut_coords(image))


def _placed(atlas: Atlas, places: np.ndarray) -> Atlas:
    """Return the atlas with coordinates, unless its table gave them."""
    rois = atlas.rois
    if not {"x", "y", "z"} <= set(rois.columns) or rois[["x", "y", "z"]].isna().all(axis=None):
        rois = rois.assign(**dict(zip("xyz", np.round(places, 2).T)))
    return Atlas(atlas.name, atlas.form, atlas.file, rois)


# -- atlases to fetch --------------------------------------------------------------------------------------


@contextmanager
def downloading(what: str, fix: str, parameter: str = "") -> Iterator[None]:
    """Turn a failed download into one sentence with its cause and what to do."""
    from requests.exceptions import ConnectionError, Timeout

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - whatever requests, tarfile or a parser of the download raises
        offline = isinstance(error, ConnectionError | Timeout) or "Max retries" in str(error)
        reason = "there is no connection to its server" if offline else one_line(error)
        raise BadInput(f"{what} could not be downloaded ({reason}): {fix}.", parameter) from error


def _from_nilearn(given: str, name: str, data_dir: str | Path | None) -> Atlas:
    """Fetch an atlas by nilearn, or find it in its cache."""
    from nilearn import datasets

    head, _, value = given.partition(":")
    function, parameter, options = FETCHERS[head]
    options = {"data_dir": None if data_dir is None else str(data_dir), "verbose": 0, **options}
    if value and not parameter:
        raise BadInput(f"The atlas {head} has no variants: write {head} in place of {given}.", "atlas")
    if value:
        options[parameter] = int(value) if value.isdigit() else value
    fix = "connect and repeat the command, or give the image itself, --atlas FILE.nii.gz"
    try:
        with downloading(f"The atlas {given} of nilearn", fix, "atlas"):
            found = getattr(datasets, function)(**options)
    except BadInput as error:
        if isinstance(error.__cause__, ValueError | KeyError | TypeError):
            raise BadInput(f"nilearn has no atlas {given} ({one_line(error.__cause__)}).", "atlas") from error
        raise
    table = _table_of(found, given)
    image = found["maps"]
    file = Path(image if isinstance(image, str | Path) else image.get_filename())
    return _from_file(file, name or given, table)


def _table_of(found: Any, given: str) -> pd.DataFrame | None:
    """Return the table of ROIs that nilearn gives with an atlas."""
    if isinstance(found.get("lut"), pd.DataFrame):
        return tidy(found["lut"][["index", "name"]], given)
    labels = found.get("labels")
    if isinstance(labels, pd.DataFrame):  # DiFuMo
        return tidy(labels, given).drop(columns="roi", errors="ignore")
    if labels is None or not len(labels):
        return None
    table = tidy(pd.DataFrame({"name": [str(one) for one in labels]}), given)
    if found.get("networks") is not None:
        table["network"] = [str(one) for one in found["networks"]]
    return table


def _from_templateflow(given: str, name: str, space: str) -> Atlas:
    """Fetch an atlas from TemplateFlow in the space of the scans."""
    try:
        from templateflow import api
    except ImportError as error:
        raise BadInput(
            f"{given} needs TemplateFlow, which is not installed: pip install templateflow, or give the image.", "atlas"
        ) from error
    _, atlas, desc = (*given.split(":"), "", "")[:3]
    query: dict[str, Any] = {"atlas": atlas, "desc": desc or None}
    surface = space == "fsLR"
    images = {"density": "91k", "extension": ".dlabel.nii"} if surface else {"resolution": 2, "extension": ".nii.gz"}
    fix = "connect and repeat the command, or give the image itself, --atlas FILE"
    with downloading(f"The atlas {given} of TemplateFlow", fix, "atlas"):
        found = api.get(space, **query, **images)
        files = [Path(one) for one in (found if isinstance(found, list) else [found])]
        table = api.get(space, **query, extension=".tsv")
    files = [one for one in files if one.stat().st_size]
    if len(files) != 1:
        what = f"{len(files)}, {', '.join(f.name for f in files[:3])}" if files else "none"
        raise BadInput(
            f"TemplateFlow has {what} for {given} in {space}: name one with templateflow:ATLAS:DESC.", "atlas"
        )
    tables = [Path(one) for one in (table if isinstance(table, list) else [table])]
    beside = read_lut(tables[0]) if len(tables) == 1 and tables[0].stat().st_size else None
    surfaces = _midthickness() if surface else ()
    return _from_file(files[0], name or "-".join(filter(None, (atlas, desc))), beside, surfaces)


def _midthickness() -> tuple[Path, ...]:
    """Return TemplateFlow's surfaces of both hemispheres; none where they are neither here nor to be downloaded."""
    from templateflow import api

    try:
        with downloading("The surfaces of TemplateFlow", "connect and repeat the command"):
            asked = {"density": "32k", "suffix": "midthickness", "extension": ".surf.gii"}
            found = [api.get("fsLR", hemi=hemisphere, **asked) for hemisphere in "LR"]
    except BadInput:
        return ()  # the import says that there are no coordinates
    files = [one for each in found for one in (each if isinstance(each, list) else [each])]
    return tuple(Path(one) for one in files if Path(one).stat().st_size)


def atlas_of(cohort: Cohort, given: str | None) -> Atlas | None:
    """Return the atlas of a cohort: the one given, or the one it was imported with where the file is still there."""
    word = given
    if word is None:
        file = Path(str(cohort.source.get("atlas_image", {}).get("file", "")))
        if not file.is_file():
            return None
        word = str(file)
    atlas = find_atlas(word)
    if len(atlas.rois) != cohort.n_rois:
        raise BadInput(
            f"{atlas.file} has {len(atlas.rois)} ROIs, {cohort.path or 'the cohort'} has {cohort.n_rois}: give the "
            "atlas that the cohort was made with.",
            "atlas",
        )
    theirs = cohort.rois["label"].astype(str).tolist()
    if atlas.labels and all(theirs) and list(atlas.labels) != theirs:
        at = next(i for i, (a, b) in enumerate(zip(atlas.labels, theirs)) if a != b)
        found = (
            f"{atlas.file} has {atlas.labels[at]!r} as ROI {at + 1}, {cohort.path or 'the cohort'} has {theirs[at]!r}"
        )
        if sorted(atlas.labels) == sorted(theirs):
            raise BadInput(f"{found}: give the atlas that the cohort was made with.", "atlas")
        say(f"{found}: make sure that it is the same atlas in the same order.")
    return atlas
