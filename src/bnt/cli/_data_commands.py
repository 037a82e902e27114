"""The commands that make, show and select cohorts. Each class is one command; its fields are the options."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bnt.sources._motion import Denoising

KINDS = "{pearson,shrunk-z,fisher-z,ledoit-wolf,partial}"


@dataclass
class Simulate:
    """Make a multi-site cohort with planted modules, site shifts and a known class effect.

    BOLD-like series between 0.01 and 0.1 Hz; the defaults look like ABIDE. Subjects are written a few at a time, so
    the size is bounded by the disk, not by memory. The same seed gives the same bytes.
    """

    out: tyro.conf.Positional[Path]
    """The cohort's folder."""
    subjects: int = 400
    """Number of subjects."""
    rois: int = 100
    """Number of ROIs."""
    sites: int = 8
    """Number of sites, of different sizes, scanners and scan lengths."""
    effect: float = 0.95
    """Cohen's d of the classes in each planted module pair; 0 plants nothing."""
    seed: int = 0
    """The same seed gives the same cohort."""
    modules: int = 7
    """Number of networks the ROIs belong to."""
    effect_pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="MODULE:MODULE[:+]")] = ()
    """Where the effect is, such as Default:Visual, weaker in the positive class, or Default:Visual:+, stronger."""
    volumes: int | None = None
    """Volumes of every scan (each site has its own number when not given)."""
    sex_effect: float = 0.95
    """Cohen's d of men and women, in module pairs of its own."""
    male_share: float = 0.85
    """Share of men."""
    kind: Annotated[str, tyro.conf.arg(metavar=KINDS)] = "pearson"
    """Connectivity to compute; shrunk-z is the authors' input."""
    series: bool = True
    """Keep the time series beside the connectomes."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""

    def run(self) -> None:
        """Simulate, and print what was planted."""
        from bnt._words import counted
        from bnt.sources._simulate import simulate_cohort

        cohort = simulate_cohort(
            self.subjects,
            self.rois,
            self.sites,
            self.effect,
            self.seed,
            self.modules,
            self.volumes,
            self.effect_pairs or None,
            kind=self.kind,
            sex_effect=self.sex_effect,
            male_share=self.male_share,
            series=self.series,
            out=self.out,
            dtype=self.dtype,
            overwrite=self.overwrite,
        )
        labels = cohort.labels("diagnosis")
        print(
            f"{self.out}: {len(cohort)} subjects ({(labels == 1).sum()} patients, {(labels == 0).sum()} controls), "
            f"{counted(self.sites, 'site')}, {cohort.n_rois} ROIs"
        )
        weaker = {-1: "weaker", 1: "stronger"}
        planted = [
            f"{a}-{b} ({weaker[d]} in patients)"
            for (a, b), d in zip(cohort.source["effect_pairs"], cohort.source["effect_directions"])
        ]
        if self.effect and planted:
            print(f"  planted, d = {self.effect:g} each: {', '.join(planted)}")
        else:
            print("  no class effect planted")
        print(f"Check it with: bnt info {self.out}")


@dataclass
class Fetch:
    """Make a cohort from a public data set, through nilearn.

    `bnt fetch abide OUT` makes the paper's 1,009 subjects of ABIDE I (C-PAC, band-pass filtered, no global
    signal regression, Craddock-200); adhd200 (40 people) and development (155) come as images, which are read with
    --atlas. Files that are in --data-dir are used, the rest is downloaded there; after an interruption, repeat the
    command to resume.
    """

    dataset: tyro.conf.Positional[Literal["abide", "adhd200", "development"]]
    """The data set."""
    out: tyro.conf.Positional[Path]
    """The cohort's folder."""
    data_dir: Path | None = None
    """Where nilearn keeps its data sets (its own default when not given)."""
    subjects: Literal["paper", "all", "quality-checked"] = "paper"
    """Of ABIDE: the paper's 1,009 (100 volumes or more), all 1,035, or the 871 that passed every rater."""
    kind: Annotated[str, tyro.conf.arg(metavar=KINDS)] = "pearson"
    """Connectivity to compute; shrunk-z is the authors' input."""
    duplicates: Literal["group", "drop"] = "group"
    """Of ABIDE, a scan that is in the release twice: keep both in one group, or keep the first."""
    pipeline: Literal["cpac", "ccs", "dparsf", "niak"] = "cpac"
    """Of ABIDE: preprocessing pipeline."""
    derivative: tuple[
        Literal["rois_cc200", "rois_cc400", "rois_aal", "rois_ho", "rois_ez", "rois_tt", "rois_dosenbach160"], ...
    ] = ("rois_cc200",)
    """Of ABIDE: atlas of the series; several give one cohort with several atlases."""
    atlas: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ATLAS ...")] = ()
    """Of adhd200 and development: one or several atlases, as for bnt import (schaefer_2018:100 when not given)."""
    denoising: Annotated[Denoising, tyro.conf.arg(name="")] = Denoising()
    jobs: int = 0
    """Processes that read files; 0 is one per core."""
    band_pass: bool = True
    """Of ABIDE: series filtered to 0.01-0.1 Hz."""
    global_signal_regression: bool = False
    """Of ABIDE: series with the global signal regressed out."""
    limit: int | None = None
    """Take only the first N subjects of the release's table."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""

    def run(self) -> None:
        """Fetch, and print what came out of it."""
        from bnt.errors import BadInput
        from bnt.sources._abide import fetch_abide

        of_images = ("dataset", "atlas", "denoising")
        if self.dataset != "abide":
            self._fetch_images()
            return
        if self.atlas:
            raise BadInput("ABIDE comes as time series: choose its atlases with derivative.", "derivative")
        cohort = fetch_abide(**{name: value for name, value in vars(self).items() if name not in of_images})
        labels = cohort.labels("diagnosis")
        sites = len(set(cohort.sites))
        print(
            f"{self.out}: {len(cohort)} subjects, {(labels == 1).sum()} ASD and {(labels == 0).sum()} controls, "
            f"{sites} sites, {cohort.n_rois} ROIs, {cohort.kind} connectomes"
        )
        short = [f for f in cohort.findings if f["check"] == "too short"]
        if short:
            print(f"  {len(short)} scans of fewer than 100 volumes left out, such as {short[0]['participant_id']}")
        for finding in cohort.findings:
            if finding["check"] == "same scan":
                done = "left out" if self.duplicates == "drop" else "both kept, in one group"
                print(f"  {finding['participant_id']} is the same scan as {finding['value']}, byte for byte: {done}")
        missing = cohort.participants["n_missing_rois"]
        print(f"  {(missing > 0).sum()} subjects have {missing.sum()} constant ROIs in all; their edges are 0")
        print(f"Check it with: bnt info {self.out}")

    def _fetch_images(self) -> None:
        """Fetch a data set of images, and print what came out of it."""
        from bnt.sources._images import fetch_images

        shared = ("dataset", "out", "data_dir", "atlas", "kind", "limit", "denoising", "jobs", "dtype", "overwrite")
        cohort = fetch_images(**{name: getattr(self, name) for name in shared})
        print(f"{self.out}: {len(cohort)} subjects, {', '.join(cohort.atlases)}, {cohort.kind} connectomes")
        label = "diagnosis" if self.dataset == "adhd200" else "child_adult"
        print(f"Check it with: bnt info {self.out}; --label {label} is what to predict")


@dataclass
class Import:
    """Make a cohort from fMRIPrep, XCP-D or C-PAC derivatives, CIFTI files, tables or arrays.

    Every scan is checked; the cohort appears when all have passed, or not at all. fMRIPrep's images are read with an
    atlas; after an interruption, repeat the command to resume.
    """

    source: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SOURCE")]
    """A folder of derivatives or files, or one file (.1D .tsv .csv .npy .npz .mat .ptseries.nii .pconn.nii)."""
    out: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT")]
    """The cohort to make."""
    participants: Path | None = None
    """Table of labels (.tsv or .csv). For derivatives, participants.tsv of the BIDS root is found."""
    kind: Annotated[str | None, tyro.conf.arg(metavar=KINDS)] = None
    """Of series: the connectivity to compute. Of matrices: what their numbers are. Unless given: pearson,
    and shrunk-z for the authors' abide.npy."""
    format: Literal["auto", "fmriprep", "xcpd", "cpac", "cifti", "files", "authors"] = "auto"
    """The reader; auto recognises it by the names of the files."""
    atlas: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ATLAS ...")] = ()
    """Which atlas, where the files are of several. For fMRIPrep: an image (.nii.gz labels or maps, .dlabel.nii) with
    its table beside it, a name that nilearn fetches (schaefer_2018:400, aal, msdl, harvard_oxford, basc:122, ...) or
    templateflow:NAME:DESC; NAME=FILE names it. Several: one cohort with several atlases."""
    denoising: Annotated[Denoising, tyro.conf.arg(name="")] = Denoising()
    jobs: int = 0
    """Processes that read images and, of a hundred or more, other files; 0 is one per core."""
    data_dir: Path | None = None
    """Where nilearn keeps the atlases it fetches (its own default when not given)."""
    runs: Literal["average", "first", "separate", "sessions", "concatenate"] = "average"
    """Several sessions or runs of a participant: mean of Fisher z, the first, one row per run, one row per session (the
    mean of its runs), or joined series."""
    content: Literal["auto", "series", "matrix"] = "auto"
    """What the files hold. auto: a square symmetric array is a matrix; derivatives with both give series."""
    pattern: str | None = None
    """Take only files whose name matches, such as '*_task-rest_*'."""
    variable: str | None = None
    """The array to take from .npz and .mat files."""
    rois: Path | None = None
    """Table of ROIs (label, x, y, z, network), in the order of the scans or with their labels."""
    id_column: str = "participant_id"
    """Column of the participants table that names participants as the files do."""
    site_column: str | None = None
    """Column of sites; site and SITE_ID are found."""
    family: Annotated[str | None, tyro.conf.arg(metavar="COLUMN")] = None
    """Column of families or twins, who stay together in splits; family_id and the like are found."""
    keep_case: bool = False
    """Keep MDD and mdd apart; by default words that differ in case or spaces only are one class."""
    missing: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="CODE ...")] = None
    """Codes for unknown values, such as --missing -9 888; none: keep every number. By default codes such as -9999 and
    999 that stand apart from all other values of a column are read as missing, with a message."""
    min_volumes: int = 20
    """A run with fewer volumes is refused."""
    drop_short: bool = False
    """Leave runs with too few volumes out instead."""
    drop_unlisted: bool = False
    """Leave scans out that the participants table does not list, instead of refusing them."""
    allow_asymmetric: bool = False
    """Average the halves of matrices that are not symmetric, and note it in the cohort."""
    transpose: bool = False
    """Series have ROIs in rows and volumes in columns."""
    max_expanded: float = 8.0
    """GB that one compressed file (.gz, .npz, .mat) may expand to; a larger one is refused."""
    dtype: Literal["float32", "float16"] = "float32"
    """How connectomes are stored."""
    overwrite: bool = False
    """Replace a cohort that is there already."""

    def run(self) -> None:
        """Import, and print what came out of it."""
        from bnt.cohort._inspect import people_of
        from bnt.sources._ingest import import_cohort

        cohort = import_cohort(**vars(self))
        missing = cohort.participants["n_missing_rois"]
        print(f"{cohort!r}")
        people = len(set(people_of(cohort.participants)))
        if people < len(cohort):
            print(f"{len(cohort)} scans of {people} people; counts, intervals and tests of results are of people.")
        if missing.any():
            print(f"{int((missing > 0).sum())} subjects lack {int(missing.sum())} ROIs in all; their edges are 0.")
        for check in sorted({f["check"] for f in cohort.findings}):
            print(f"{check}: {sum(f['check'] == check for f in cohort.findings)} (listed in {self.out}/cohort.json)")
        print(f"Written to {self.out}.")


@dataclass
class Info:
    """Check a cohort before training.

    Counts per site and class, age, sex and motion by class, scan lengths, constant ROIs, NaNs, duplicate scans
    (same bytes), matrices that were not symmetric, values beyond [-1, 1], Fisher z given as Pearson.
    """

    cohort: tyro.conf.Positional[Path]
    """A cohort's folder."""
    label: str | None = None
    """Column to count classes by (diagnosis, where there is one)."""
    verify: bool = False
    """Also compare every file with its recorded sha256."""
    json: bool = False
    """Print the whole report as JSON."""

    def run(self) -> None:
        """Inspect a cohort and print the report."""
        from bnt.cohort import load_cohort
        from bnt.cohort._beside import FOLDER, cache_size
        from bnt.cohort._findings import layout
        from bnt.cohort._inspect import inspect_cohort

        cohort = load_cohort(self.cohort)
        report = inspect_cohort(cohort, self.label, verify=self.verify)
        if self.json:
            everything = asdict(report)
            del everything["family_of"]  # one row per subject: participants.tsv has it
            print(json.dumps(everything, indent=2, ensure_ascii=False))
        else:
            print("\n".join(layout(report)))
            others = [str(cohort.with_atlas(name).path) for name in cohort.atlases if name != cohort.atlas]
            if others:
                print(f"The same people in other atlases: {', '.join(others)}.")
            n_kept, kept = cache_size(self.cohort)
            if n_kept:
                print(
                    f"Kept in {self.cohort / FOLDER}: {n_kept} arrays, {kept / 1e6:,.1f} MB, that studies need; "
                    "it may be deleted at any time, and --cache-gb of bnt compare bounds it."
                )


@dataclass
class Select:
    """Make a cohort of some subjects of another: those who have a label, those of a site, those of a list.

    Conditions are joined: a subject must meet all of them.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The new cohort's folder."""
    having: tuple[str, ...] = ()
    """Columns of participants.tsv in which a subject must have a value, for example diagnosis age."""
    where: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CONDITION ...")] = ()
    """What must be true of a subject: "mean_fd < 0.2 and site != 'NYU'", with and, or, not, in and parentheses; or
    values, sex=F site=NYU,UM_1 (one of several). A subject without a value meets no comparison."""
    ids: Path | None = None
    """A text file with one participant_id per line."""
    overwrite: bool = False
    """Replace a cohort that is there already."""

    def run(self) -> None:
        """Write the new cohort, and print its size."""
        from bnt.cli._parsing import meets
        from bnt.cohort import load_cohort
        from bnt.cohort._files import refuse_existing
        from bnt.cohort._inspect import people_of
        from bnt.errors import BadInput

        refuse_existing(self.out, self.overwrite, "cohort.json")
        whole = load_cohort(self.cohort)
        chosen = whole.having(*self.having) if self.having else whole
        for condition in self.where:
            chosen = chosen.select(meets(chosen.participants, condition))
        if self.ids is not None:
            try:
                lines = self.ids.read_text().split()
            except (OSError, ValueError) as error:
                raise BadInput(f"{self.ids} cannot be read ({error}): give a text file of participant ids.") from error
            unknown = sorted(set(lines) - set(whole.ids.tolist()))
            if unknown:
                raise BadInput(f"{self.ids} names {unknown[0]!r}, who is not in {self.cohort}: remove the line.")
            chosen = chosen.select([name for name in chosen.ids.tolist() if name in set(lines)])
        if not len(chosen):
            raise BadInput(f"None of the {len(whole)} subjects of {self.cohort} meets these conditions.")
        chosen.save(self.out, overwrite=self.overwrite)
        people, of = (len(set(people_of(one.participants))) for one in (chosen, whole))
        what = "subjects" if of == len(whole) else "scans"
        more = "" if of == len(whole) else f" ({people} of {of} people)"
        print(f"{self.out}: {len(chosen)} of {len(whole)} {what}{more}, {len(whole) - len(chosen)} left out")
