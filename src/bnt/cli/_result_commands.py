"""The commands predict, validate, explain and report. Each class is one command; its fields are the options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

if TYPE_CHECKING:
    from bnt.cohort import Cohort
    from bnt.predict import Validation


@dataclass(frozen=True)
class Predict:
    """Predict new subjects with a finished run.

    SOURCE is a cohort, or anything that `bnt import` reads: a folder of derivatives, or one scan's file.
    Each row has the probability of each class; the interval of a calibrated probability of the last class, from
    subjects held out from training (the model's own may lie outside where it is badly calibrated); the classes that
    cannot be ruled out at 90 %; what about the scan is unlike the training data; and, with --explain, the connections
    that moved the prediction most.
    Research use only: the predictions must not be used to decide about the care of any person.
    """

    trained_run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`, one of the runs of a study (STUDY/runs/...), a folder of `bnt export`, or a model
    on the hub (hf://owner/name)."""
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """A cohort, a folder of derivatives, or one file."""
    out: Path | None = None
    """Write the table here (CSV) instead of printing it."""
    atlas: str | None = None
    """Which atlas, where a folder holds several."""
    participants: Path | None = None
    """A table with the sites (and confounds) of the new subjects, where SOURCE is not a cohort."""
    content: Literal["auto", "series", "matrix"] | None = None
    """What to read where derivatives have both; as for the training cohort without it, where that is still there."""
    runs: Literal["average", "first", "separate", "concatenate"] | None = None
    """What to do with several runs; as for the training cohort without it, where that is still there."""
    min_volumes: int = 20
    """Shortest scan that is taken, where SOURCE is not a cohort."""
    max_expanded: float = 8.0
    """GB that one compressed file of SOURCE may expand to."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    adapt: bool = False
    """Centre each new site of 20 scans or more on the training mean, from its unlabelled scans; said in the output."""
    explain: bool = False
    """Name the connections that moved each prediction most."""
    top: int = 5
    """How many connections to name."""

    def run(self) -> None:
        """Print or write one row per subject."""
        from bnt._words import say
        from bnt.cohort import load_cohort
        from bnt.cohort._files import writable, write_atomic
        from bnt.errors import BadInput
        from bnt.predict._certainty import UNAVAILABLE
        from bnt.predict._subjects import NOT_AVAILABLE, explained_target, subject_table
        from bnt.training._trained import TrainedRun, local_model

        if self.top < 1:
            raise BadInput(f"--top is {self.top}: give a number of connections from 1.")
        if self.out is not None and (self.out.is_dir() or not self.out.absolute().parent.is_dir()):
            raise BadInput(f"--out {self.out} is a folder, or its folder does not exist: give a file to write.")
        refuse_study(self.trained_run)
        trained = TrainedRun(local_model(self.trained_run), model_file=self.model_file)
        n_top = self.top if self.explain else 0
        if (self.source / "cohort.json").is_file():
            table = subject_table(trained, load_cohort(self.source), n_top, adapt=self.adapt)
        else:
            from bnt.sources import read_cohort

            if not self.source.exists():
                raise BadInput(f"{self.source} does not exist: give a cohort, a folder of derivatives or one file.")
            cohort = read_cohort(
                self.source,
                like=training_cohort(trained.config.cohort),
                kind=trained.config.kind,
                content=self.content,
                runs=self.runs,
                atlas=self.atlas,
                participants=self.participants,
                min_volumes=self.min_volumes,
                max_expanded=self.max_expanded,
            )
            table = subject_table(trained, cohort, n_top, adapt=self.adapt)
        for sentence in dict.fromkeys(table.get("new_site", [])):
            if sentence:
                say(sentence)
        if self.adapt and not table["new_site"].any():
            say("Nothing was adapted: every site is in training.")
        if self.explain and not table["top_connections"].str.startswith(NOT_AVAILABLE).all():
            say(f"Signed numbers behind connections are what each adds to {explained_target(trained)}.")
        unlike = ~table["unlike_training"].isin(["", "site not known", UNAVAILABLE])
        if (table["unlike_training"] == UNAVAILABLE).any():
            say(f"Whether scans are like the training data is {UNAVAILABLE}.")
        if unlike.any():
            first = table.loc[unlike].iloc[0]
            say(
                f"{unlike.sum()} of {len(table)} scans may be unlike the training data; "
                f"the first is {first['participant_id']}: {first['unlike_training']}."
            )
        seen = table["seen_in"].isin(["train", "validation"])
        if seen.any():
            say(
                f"{seen.sum()} of {len(table)} subjects have the names of subjects that the run was trained or "
                "selected on (column seen_in): if they are the same, their predictions are too good."
            )
        text = table.to_csv(index=False, float_format="%.6f")
        if self.out is None:
            print(text, end="")
        else:
            with writable(self.out):
                write_atomic(self.out, text)
            print(f"{len(table)} subjects in {self.out}")


def training_cohort(folder: str) -> Cohort | None:
    """Return the training cohort, where it still is: new scans are read in the same way."""
    from bnt.cohort import load_cohort
    from bnt.errors import BadInput

    try:
        return load_cohort(folder) if folder else None
    except BadInput:
        return None


def refuse_study(folder: Path) -> None:
    """Refuse a study, which holds many runs, and name one of them."""
    from bnt.errors import BadInput

    if (folder / "config.toml").is_file() or not (folder / "study.json").is_file():
        return
    runs = sorted(file.parent for file in (folder / "runs").glob("*/DONE"))
    if not runs:
        raise BadInput(f"{folder} is a study, not a run, and none of the runs in {folder / 'runs'} is finished yet.")
    count = f"{len(runs)} finished run{'s' * (len(runs) != 1)}"
    raise BadInput(f"{folder} is a study of {count}: give one of them, for example {runs[0]}.")


@dataclass(frozen=True)
class Validate:
    """Validate a finished run on people from elsewhere.

    COHORT has the run's label, of people that the run has not seen. Nothing is fitted to them: model, harmonisation,
    confounds and threshold are those of the run. The folder then holds validation.json, people.csv, subgroups.csv and
    the page validation.html. People that the run was trained or selected on are refused, by scan and by id.
    Research use only: the predictions must not be used to decide about the care of any person.
    """

    trained_run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`, one of the runs of a study (STUDY/runs/...), a folder of `bnt export`, or a model
    on the hub (hf://owner/name)."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """A cohort of other people, with the label of the run."""
    out: Path
    """Folder of the results, which is created."""
    adapt: bool = False
    """Centre each new site of 20 scans or more on the training mean, from its unlabelled scans."""
    allow_same_ids: bool = False
    """Take people whose ids are those of training people; the same scan is refused in any case."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    overwrite: bool = False
    """Replace an existing validation."""

    def run(self) -> None:
        """Validate, write the folder, and print the result."""
        from bnt._words import say
        from bnt.cohort import load_cohort
        from bnt.predict import validate_run
        from bnt.report import write_validation
        from bnt.training._trained import TrainedRun, local_model

        refuse_study(self.trained_run)
        trained = TrainedRun(local_model(self.trained_run), model_file=self.model_file)
        cohort = load_cohort(self.cohort)
        found = validate_run(trained, cohort, adapt=self.adapt, allow_same_ids=self.allow_same_ids)
        for sentence in found.facts["new_sites"]:
            say(sentence)
        page = write_validation(found, self.out, overwrite=self.overwrite)
        print(validation_summary(found))
        print(f"Page: {page}")


def validation_summary(found: Validation) -> str:
    """Return the result in a few lines: every estimate with its interval, then what it means."""
    from math import isfinite

    from bnt._words import shown, shown_name, spoken

    facts = found.facts
    about = [f"{facts['n_scans']} scans, averaged within a person"] if facts["n_scans"] > facts["n"] else []
    about += [] if facts["positive"] is None else [f"positive class: {facts['label']} = {facts['positive']}"]
    more = f" ({'; '.join(about)})" if about else ""
    lines = [f"{facts['model']} on {facts['n']} people from elsewhere{more}, 95 % intervals in brackets"]
    for name, value in found.metrics.items():
        span = f" [{shown(value.low, name)}, {shown(value.high, name)}]" if isfinite(value.low) else ""
        at = f" at threshold {facts['threshold']:.3g}" if name == "sensitivity" else ""
        words = f"{spoken(value.value, name)}{span}{at}" if isfinite(value.value) else "undefined"
        lines.append(f"  {shown_name(name)} {words}")
    own = found.own_test.get("auroc_difference")
    if own is not None:
        ends = ", ".join(shown(end, "auroc", "+") for end in (own.low, own.high))
        gap = f"{shown(own.value, 'auroc', '+')} points [{ends}]"
        lines.append(f"  AUROC minus that of the run's own test set: {gap}")
    return "\n".join([*lines, *found.findings])


@dataclass(frozen=True)
class Explain:
    """Explain a finished run: attention by network, cluster assignments, edge attributions.

    Writes tables (CSV), figures (PNG and PDF) and explain.json into DIR. What the model does not have is left out (a
    linear model has no attention). explain.json has the main numbers: n_subjects are those explained, and
    n_subjects_of_map those that the edge map was computed from (a pattern uses the training set).
    """

    trained_run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder made by `bnt train`."""
    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder to write."""
    method: Literal["auto", "integrated-gradients", "gradient", "pattern", "coefficients"] = "auto"
    """How edges are explained: integrated gradients (captum) or gradient times input for networks; patterns (Haufe) or
    standardised coefficients for linear models; patterns work for any model."""
    target: str | None = None
    """The class to explain; the last one by default."""
    subjects: Literal["test", "validation", "train", "all"] = "test"
    """Whose predictions are explained."""
    also: tuple[Path, ...] = ()
    """More runs of the same kind (other splits or seeds): how stable are clusters and edges over them?"""
    sanity: int = 0
    """Refit this many times on resampled training subjects, with true and with shuffled labels: the latter must give no
    stable map."""
    permutations: int = 1000
    """Permutations of every test."""
    seed: int = 0
    """Seed of permutations and resamples."""
    atlas: str | None = None
    """The atlas image, as for bnt import: ROI and edge maps are then written as NIfTI or CIFTI, and drawn on the
    surface. Not needed where the cohort was imported with an image that is still there."""
    model_file: Path | None = None
    """The file of a model of your own, if you trust it: it is run. Not needed where you trained with it yourself."""
    overwrite: bool = False
    """Replace an existing explanation."""

    def run(self) -> None:
        """Write the explanation and print its main findings."""
        from bnt.cohort import load_cohort
        from bnt.cohort._files import new_folder
        from bnt.errors import BadInput
        from bnt.explain._writing import Explanation, chosen_rows
        from bnt.report._explained import checks, findings
        from bnt.sources._atlas import atlas_of
        from bnt.training import TrainedRun
        from bnt.training._trained import local_model

        if self.sanity == 1 or self.sanity < 0:
            raise BadInput(f"sanity is {self.sanity}: stability compares at least 2 refits.", "sanity")
        trained = TrainedRun(local_model(self.trained_run), model_file=self.model_file)
        also = [TrainedRun(path, model_file=self.model_file) for path in self.also]
        cohort = load_cohort(self.cohort)
        for one in (trained, *also):
            one.check(cohort)
        rows = chosen_rows(trained, cohort, self.subjects)
        method = None if self.method == "auto" else self.method
        atlas = atlas_of(cohort, self.atlas)
        with new_folder(self.out, overwrite=self.overwrite, marker="explain.json") as folder:
            work = Explanation(trained, cohort, rows, folder, self.permutations, self.seed, atlas)
            # Names without folders, so that it can be shared.
            facts: dict[str, Any] = {"run": self.trained_run.resolve().name, "cohort": self.cohort.resolve().name}
            facts["subjects"] = self.subjects
            facts |= work.write(method, self.target, also, self.sanity)
            work.summary(facts)
        print("\n".join([*findings(facts), *checks(facts)]))
        print(f"Tables, figures and explain.json in {self.out}")


@dataclass(frozen=True)
class Report:
    """Write one self-contained HTML page about a run or a study: no network, opens from disk.

    With --watch the page of a study is kept current while it runs, and a browser that shows it reads it again by
    itself; the command ends when the study does.
    """

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY_OR_RUN")]
    """A folder made by `bnt compare` or `bnt train`."""
    out: Path | None = None
    """The page to write; report.html in the folder by default."""
    watch: bool = False
    """Keep the page of a study current until all its runs are finished."""
    every: float = 10.0
    """Seconds between two looks (with --watch)."""
    with_ids: bool = False
    """Also the ids of subjects and whole paths, which the page has not, so that it can be shared."""
    paper: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write what a paper about a finished study needs into this folder: methods with their references, tables
    (CSV, LaTeX, Markdown), figures (PDF, and PNG of 300 dpi), the TRIPOD+AI checklist and the model cards."""
    overwrite: bool = False
    """Replace the folder of --paper."""

    def run(self) -> None:
        """Write the page, and what a paper needs, and say where they are."""
        from bnt._words import say
        from bnt.report._pages import watch_report, write_report

        if self.watch:
            target = watch_report(self.folder, self.out, every=self.every, say=say, with_ids=self.with_ids)
        if self.paper is not None:
            from bnt.report._paper import write_paper

            write_paper(self.folder, self.paper, overwrite=self.overwrite)
            if not (self.paper / "demographics.csv").is_file():
                say("The cohort is not where it was, or has changed: the paper's folder has no demographics.")
            print(f"Methods, tables, figures and checklist in {self.paper}")
        if not self.watch:
            target = write_report(self.folder, self.out, with_ids=self.with_ids)
        print(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")
