"""The commands split, audit, train and learning-curve. Each class is one command; its fields are the options."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from bnt.cli._options import (
    Around,
    Machine,
    Settings,
    Splits,
    Splitting,
    Target,
    Training,
    carry_out,
    of_groups_that_fit,
    print_failures,
    say_task,
    study_settings,
)
from bnt.cli._parsing import typed


@dataclass(frozen=True)
class Split:
    """Make splits of a cohort and save them as a table of subjects, or check a table against the cohort.

    The table has one row per subject and one column per split: train, validation, test, or empty for left out. Every
    command that splits takes such a file in place of a protocol. A split in which a subject, a family or the
    same scan is in two sets is refused.
    """

    cohort: tyro.conf.Positional[Path]
    """The cohort's folder."""
    label: str = "diagnosis"
    """Column of participants.tsv whose classes are shared out evenly."""
    protocol: str = "site-stratified"
    """site-stratified, random, kfold, leave-one-site-out, released, or a table of splits."""
    n_splits: int | None = None
    """Number of splits of site-stratified, random and released (20)."""
    folds: int | None = None
    """Number of folds of kfold (5)."""
    repeats: int | None = None
    """How often all folds of kfold are drawn (1)."""
    seed: int = 0
    """Seed of the splits."""
    train_fraction: float = 1.0
    """Keep this share of the training set, for learning curves."""
    out: Path | None = None
    """Table to write, .csv or .tsv."""
    overwrite: bool = False
    """Replace a table that is there."""
    check: Path | None = None
    """Check this table against the cohort instead of making splits."""

    def run(self) -> None:
        """Make or check splits and print the sizes of their sets."""
        from bnt._words import counted
        from bnt.cohort import load_cohort
        from bnt.errors import BadInput
        from bnt.splits import named_splits, read_splits, save_splits

        if self.out is not None and self.out.exists() and not self.overwrite:
            raise BadInput(f"{self.out} exists already: choose another name, or pass --overwrite to replace it.")
        if self.out is not None and self.out.suffix not in (".csv", ".tsv"):
            raise BadInput(f"--out {self.out} must end in .csv or .tsv, so that --protocol can read it.")
        if self.check is not None and not self.check.is_file():
            raise BadInput(f"There is no file {self.check}: give a table of splits that exists.")
        cohort = load_cohort(self.cohort)
        if self.check is not None:
            splits = read_splits(self.check, cohort)
        else:
            splits = named_splits(cohort, self.label, self.protocol, **_settings(self))
        if self.out is not None:
            save_splits(self.out, cohort, splits)
        width = max(len("split"), *(len(split.short) for split in splits))
        print(f"{'split':<{width}}  training  validation  test  left out")
        for split in splits:
            train, val, test = split.sizes
            print(f"{split.short:<{width}}  {train:8d}  {val:10d}  {test:4d}  {len(cohort) - train - val - test:8d}")
        if self.check is not None:
            print(f"{self.check}: {counted(len(splits), 'split')}, no subject, family or scan in two sets.")
        elif self.out is not None:
            print(f"{self.out}: {counted(len(splits), 'split')} written.")


def _settings(options: Split) -> dict[str, Any]:
    """Return the settings that the protocol has; numbers that mean nothing to it are refused."""
    from bnt.errors import BadInput
    from bnt.splits._protocols import canonical, is_table

    name = canonical(options.protocol)
    folds = name in ("kfold", "nested")
    whole = is_table(name) or name == "leave-one-site-out"
    for option, value, means in (
        ("--n-splits", options.n_splits, not folds and not whole),
        ("--folds", options.folds, folds),
        ("--repeats", options.repeats, folds),
    ):
        if value is not None and not means:
            instead = "use --folds and --repeats" if folds else "use --n-splits" if not whole else "leave it out"
            raise BadInput(f"{option} means nothing to protocol {options.protocol}: {instead}.")
    if is_table(name):
        return {"n_splits": None}
    settings: dict[str, Any] = {"n_splits": None, "seed": options.seed, "train_fraction": options.train_fraction}
    if folds:
        given = {"n_folds": options.folds, "n_repeats": options.repeats}
        return settings | {key: value for key, value in given.items() if value is not None}
    return settings if whole else settings | {"n_splits": 20 if options.n_splits is None else options.n_splits}


@dataclass(frozen=True)
class Audit:
    """Check anybody's table of splits, and predictions made with it, against a cohort.

    Looks for subjects, families and scans in two sets, one training set for all splits, test sets used twice, no
    validation set, predictions of people outside the test set, inverted labels, AUROCs of hard labels, and scores
    that look as if the test set had been selected on. Exit code 1 if anything was found.
    """

    splits: tyro.conf.Positional[Path]
    """Table of splits: one column per split, or the columns participant_id, split and part."""
    cohort: tyro.conf.Positional[Path]
    """The cohort's folder."""
    predictions: Path | None = None
    """Table of predictions: participant_id, probability of the positive class, and split; part and label if known."""
    label: str = "diagnosis"
    """Column of participants.tsv that was predicted."""

    def run(self) -> int:
        """Print what was found."""
        from bnt.cohort import load_cohort
        from bnt.errors import BadInput
        from bnt.splits import audit_splits

        if not self.splits.is_file():
            raise BadInput(f"There is no file {self.splits}: give a table of splits that exists.")
        found = audit_splits(self.splits, load_cohort(self.cohort), self.predictions, self.label)
        for one in found:
            print(f"{one.check}: {one.sentence}")
        checked = "splits" if self.predictions is None else "splits and predictions"
        print(
            f"{self.splits}: {len(found)} findings in {checked}." if found else f"{self.splits}: {checked} are clean."
        )
        return 1 if found else 0


@dataclass(frozen=True)
class Train:
    """Train one model on one split: train, select on validation, test once.

    The folder RUN then holds the configuration, the split, the metrics of every epoch, predictions, weights, a report
    and a model card. After an interruption the same command with --resume ends at the same result.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the run, which is created."""
    model: str = "best"
    """A model of `bnt models`; best is the one to take first. (--recipe best is no model: it refits any of them.)"""
    option: Settings = ()
    """Options of the model, for example n_clusters=10 (see `bnt models MODEL`)."""
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    split: str = "0"
    """Which split: its number or, in a table, its column."""
    splitting: Annotated[Splitting, tyro.conf.arg(name="")] = Splitting()
    seed: int = 0
    """Seed of initialisation, batches, dropout and mixup."""
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    around: Annotated[Around, tyro.conf.arg(name="")] = Around()
    threads: int = 0
    """CPU threads; 0 is what OMP_NUM_THREADS says, or all cores."""
    device: str = "auto"
    """cpu, cuda, or auto: cuda where there is one."""
    processes: int = 1
    """Train one network in this many processes, each with its part of every batch: one per GPU, or --threads CPUs each.
    The result is that of one process but for rounding. torchrun starts them too."""
    memory_gb: float | None = None
    """About how much memory a classical model may take, in GB, before its features stay on disk and it is solved by
    passes over them; by default half of the machine's."""
    bf16: bool = False
    """Autocast to bfloat16, for GPUs that have it."""
    resume: bool = False
    """Resume an interrupted run."""
    overwrite: bool = False
    """Replace an existing run."""
    track: Annotated[tuple[Literal["tensorboard", "mlflow", "wandb"], ...], tyro.conf.arg(metavar="TRACKER ...")] = ()
    """Also write every epoch for tensorboard, mlflow or wandb (offline): files on this machine only."""
    track_dir: Path | None = None
    """Where trackers write; by default a folder such as tensorboard-log beside the run."""

    def run(self) -> int:
        """Train, and print the test result."""
        import os

        import torch

        from bnt.training._processes import LEFT_ALONE, STARTED, LeftAlone, is_member, joined_group, launch

        if self.processes > 1 and not is_member():
            return launch(shlex.split(typed())[1:], self.processes)
        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            with joined_group(device):
                self._train(
                    device, self.threads or int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
                )
        except LeftAlone:
            if STARTED not in os.environ:
                raise
            return LEFT_ALONE
        return 0

    def _train(self, device: str, threads: int) -> None:
        from bnt.cli._options import EpochLine
        from bnt.cli._parsing import parse_settings
        from bnt.cohort import load_cohort
        from bnt.errors import BadInput
        from bnt.models.classical._inputs import memory_bound
        from bnt.splits._protocols import choose_split
        from bnt.training import find_recipe
        from bnt.training._checkpoint import Tracking
        from bnt.training._config import describe
        from bnt.training._processes import current
        from bnt.training._run import follow_run, remove_unstarted, train_run

        cohort = load_cohort(self.cohort)
        target, splitting, training = self.target, self.splitting, self.training
        recipe = find_recipe(training.recipe, self.model, **training.changes())
        split = choose_split(cohort, target.label, splitting.protocol, which=self.split, seed=splitting.split_seed)
        config = describe(
            cohort,
            target.label,
            split,
            model=self.model,
            options=parse_settings(self.option, "--option"),
            recipe=recipe,
            recipe_name=training.recipe,
            seed=self.seed,
            threads=threads,
            device=device,
            bf16=self.bf16,
            task=target.task,
            positive=target.positive,
            adjustments=self.around.adjustments(),
        )
        if not current().first:
            follow_run(cohort, split, config, self.out)
            return
        say_task(cohort, target)
        with (
            memory_bound(self.memory_gb),
            EpochLine() as line,
            Tracking(self.track, config, self.out, folder=self.track_dir, watch=line) as watch,
        ):
            new = not self.out.exists()
            try:
                result = train_run(
                    cohort, split, config, self.out, resume=self.resume, overwrite=self.overwrite, watch=watch
                )
            except BadInput:
                if new:
                    remove_unstarted(self.out)
                raise
            watch.tested(result.report)
        print(headline(result.report, config.label))


def headline(report: dict, label: str) -> str:
    """Return the test result in two lines, and what is to be said of it."""
    from bnt._words import percent, shown, shown_name, spoken

    test = report["test"]

    def words(name: str) -> str:
        if not isfinite(test[name]):
            why = "a class is missing" if "auroc" in test else "constant values"
            return f"{shown_name(name)} undefined ({why} in the test set)"
        interval = test.get(f"{name}_ci")
        span = f" [{shown(interval[0], name)}, {shown(interval[1], name)}]" if interval else ""
        return f"{shown_name(name)} {spoken(test[name], name)}{span}"

    caution = report.get("site_caution") or ""
    within = ["auroc_within_site"] if caution else []
    names = [
        n for n in ("auroc", *within, "accuracy", "sensitivity", "specificity", "r", "r2", "mae", "medae") if n in test
    ]
    positive = report["positive_class"]
    who = f" (positive class: {label} = {positive})" if positive is not None else ""
    more = [*([caution] if caution else []), *report.get("new_sites", [])]
    both = test.get("n", 0) - report["n"]["test"]
    if both > 0:
        more.append(f"{both} test subjects have scans of two classes and count once in each, as two people would.")
    if "threshold" in report:
        more.append(f"Threshold chosen on validation: {report['threshold']:.3g}.")
    if report.get("site_accuracy"):
        before, after = (report["site_accuracy"][when] for when in ("before", "after"))
        more.append(
            f"A linear classifier predicts the site of {before['n']} test scans with accuracy "
            f"{percent(before['accuracy'], 1)} before and {percent(after['accuracy'], 1)} after harmonisation "
            f"(always the largest site: {percent(before['chance'], 1)})."
        )
    if report.get("never_predicted"):
        never = ", ".join(f"{label} = {name}" for name in report["never_predicted"])
        also = " or --threshold validation" if positive is not None else ""  # which two classes have
        more.append(f"Caution: never predicted in the test set: {never}; --class-weight balanced{also} may help.")
    return "\n".join(
        [
            f"{report['model']} on {report['n']['test']} test subjects{who}, 95 % intervals in brackets",
            f"{', '.join(words(n) for n in names)}; {report['seconds']:.0f} s",
            *more,
        ]
    )


@dataclass(frozen=True)
class LearningCurve:
    """Draw score against the number of training people, and estimate how many a target score would need.

    Every split is trained on shares of its training set; validation and test people stay the same. A curve
    a - b n^-c is fitted. Far beyond the number of people you have it is an extrapolation, with a wide interval. With
    --sites each site is left out once and tested by models trained on the given numbers of other sites.
    """

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Path
    """Folder of the study: curve.csv, curve.md, curve.png and curve.pdf."""
    model: tuple[str, ...] = ("linear-ensemble",)
    """Models of `bnt models`, each with options if need be."""
    fractions: tuple[float, ...] = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
    """Shares of the training set."""
    sites: tuple[int, ...] = ()
    """Numbers of training sites, for example 2 4 8 16, in place of fractions."""
    aim: float | None = None
    """The score whose sample size is estimated, for example 0.75 (AUROC, or r of a score)."""
    splitting: Annotated[Splits, tyro.conf.arg(name="")] = Splits()
    target: Annotated[Target, tyro.conf.arg(name="")] = Target()
    training: Annotated[Training, tyro.conf.arg(name="")] = Training()
    around: Annotated[Around, tyro.conf.arg(name="")] = Around()
    machine: Annotated[Machine, tyro.conf.arg(name="")] = Machine()

    def run(self) -> int:
        """Run the shares, fit the curve and print the table."""
        from bnt._words import say
        from bnt.cli._parsing import parse_variant
        from bnt.cohort import load_cohort
        from bnt.cohort._files import write_atomic
        from bnt.errors import BadInput
        from bnt.models import expand_models
        from bnt.plotting import save_figure
        from bnt.plotting._charts import sample_size_curve
        from bnt.studies import Study, fit_power_law, run_table
        from bnt.studies._sample_size import (
            FEWEST_SIZES,
            curve_table,
            curve_text,
            fewer_sites,
            people_needed,
            share_name,
            sites_name,
            thinned_splits,
            trainable_fractions,
        )

        if any(not 0 < fraction <= 1 for fraction in self.fractions):
            raise BadInput("fractions must be above 0 and at most 1.", "fractions")
        if self.sites and self.aim is not None:
            raise BadInput("aim is estimated from numbers of people: leave sites out.", "aim")
        cohort = load_cohort(self.cohort)
        target, training, splitting = self.target, self.training, self.splitting
        around = self.around.adjustments()
        words = expand_models(self.model)
        variants = [parse_variant(word, training.recipe, training.changes(), around) for word in words]
        variants = of_groups_that_fit(variants, self.model, cohort)
        if self.sites:
            splits = fewer_sites(cohort, target.label, self.sites, seed=splitting.split_seed)
        else:
            drawn: dict[str, Any] = {"n_splits": splitting.splits, "seed": splitting.split_seed}
            place = cohort, target.label, splitting.protocol
            fractions, left_out = trainable_fractions(*place, self.fractions, variants, **drawn)
            if left_out:
                say(left_out)
            if len(set(fractions)) < FEWEST_SIZES:
                few = f"A curve is fitted to {FEWEST_SIZES} sizes or more, and there are {len(set(fractions))}"
                if self.aim is not None:
                    raise BadInput(f"{few}: aim cannot be estimated; give more fractions.", "fractions")
                say(f"{few}: the scores are shown without one; --fractions gives more.")
            splits = thinned_splits(*place, fractions, **drawn)
        say_task(cohort, target)
        settings = study_settings(target, splitting, self.machine)
        study = Study(self.out, cohort, target.label, variants, splits, **settings)
        failures = carry_out(study, self.machine)
        runs = run_table(self.out)
        if runs.empty:
            return print_failures(failures)
        metric = "auroc" if "auroc" in runs else "r"
        sizes, ending = (self.sites, sites_name) if self.sites else (fractions, share_name)
        table = curve_table(runs, sizes, metric, ending)
        laws, needed = {}, {}
        fitted = not self.sites and len(set(fractions)) >= FEWEST_SIZES
        for name, mine in runs.groupby("variant", sort=False) if fitted else ():
            laws[str(name)] = fit_power_law(mine["n_train"].to_numpy(), mine[metric].to_numpy())
            if self.aim is not None:
                needed[str(name)] = people_needed(mine, metric, self.aim)
        text = curve_text(table, metric, target.label, laws, needed, self.aim)
        write_atomic(self.out / "curve.csv", table.to_csv(index=False))
        write_atomic(self.out / "curve.md", text)
        figure = sample_size_curve(table, metric, {name: law.score for name, law in laws.items()}, self.aim)
        for kind in ("png", "pdf"):
            save_figure(figure, self.out / f"curve.{kind}")
        print(text)
        print(f"Written: {self.out}/curve.csv, curve.md, curve.png, curve.pdf")
        return print_failures(failures)
