"""Studies behind a table or figure of the paper: run a grid of variants and splits; write its files and Markdown."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bnt._words import duration
from bnt.cohort import Cohort
from bnt.cohort._files import held, writable, write_atomic
from bnt.connectivity import KINDS
from bnt.errors import BadInput
from bnt.models import find_entry
from bnt.models._registry import is_own
from bnt.paper._plan import N_RUNS, Plan, prepare, show
from bnt.plotting._style import save_figure
from bnt.splits import Split
from bnt.studies._job import BEYOND_STEPS, Variant, epochs_in_words, most_epochs, most_steps, step_seconds
from bnt.studies._results import read_study, run_table
from bnt.studies._study import Study
from bnt.studies._summary import write_tables
from bnt.training._recipe import Recipe

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKER = "reproduce.json"
GREY = "#8C8C8C"


@dataclass
class GridResult:
    """The results of a grid of runs.

    Attributes
    ----------
    runs, summary : DataFrame
        As :func:`bnt.studies._summary.write_tables` returns them; empty where nothing finished.
    missing : dict
        Why a variant has no result: it was skipped, or all its runs failed.
    failed : dict
        Why a run of a variant that has others failed, by the run's name.
    fitted : dict
        Which defaults of a variant were changed to fit the cohort.
    seconds : float
    folder : path
    comparisons : DataFrame
    variants : list of Variant
        All variants of the folder's study, those of earlier commands among them.
    """

    runs: pd.DataFrame
    summary: pd.DataFrame
    missing: dict[str, str]
    seconds: float
    folder: Path
    comparisons: pd.DataFrame = field(default_factory=pd.DataFrame)
    variants: list[Variant] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    fitted: dict[str, str] = field(default_factory=dict)

    def value(self, variant: str, metric: str = "auroc", scale: float = 100.0) -> tuple[float, float]:
        """Return mean and SD over splits of a variant, NaN where there is none."""
        found = self.summary[self.summary["variant"] == variant] if len(self.summary) else self.summary
        if not len(found) or metric not in found:
            return float("nan"), float("nan")
        return scale * float(found[metric].iloc[0]), scale * float(found[f"{metric}_sd"].iloc[0])

    def n_splits(self, variant: str, metric: str = "auroc") -> int:
        """Return the number of splits behind a variant's mean."""
        found = self.summary[self.summary["variant"] == variant] if len(self.summary) else self.summary
        return int(found[f"{metric}_n"].iloc[0]) if len(found) and metric in found else 0

    def shown(self, variant: str, metric: str = "auroc") -> str:
        """Return mean ± SD in per cent as text, with the number of splits where others have more."""
        text, n = show(self.value(variant, metric)), self.n_splits(variant, metric)
        return f"{text} (n = {n})" if 0 < n < self.summary["n_splits"].max() else text


def announce(plan: Plan, study: Study) -> None:
    """Say how many runs there are and about how long they will take."""
    todo = study.todo()
    if not todo:
        plan.say(f"All {len(study.jobs())} runs are done; their tables are made again.")
        return
    measured: dict[tuple[str, str], float] = {}
    total, steps = 0.0, 0
    networks = [job for job in todo if find_entry(job.variant.model).trains_in_epochs]
    for job in networks:
        kind = (job.variant.model, str(job.variant.options.get("readout", "")))
        if kind not in measured:
            measured[kind] = step_seconds(plan.cohort, job.variant, threads=plan.threads, device=plan.device)
        n = most_steps(job.variant.recipe, len(job.split.train), len(job.split.validation))
        steps += n
        total += n * measured[kind] * BEYOND_STEPS
    at_once = max(1, min(plan.jobs, len(todo)))
    said = f"{len(todo)} of {len(study.jobs())} runs to do"
    if networks:
        most = [most_epochs(job.variant.recipe, len(job.split.train)) for job in networks]
        early = any(stopping_words(job.variant.recipe, n) for job, n in zip(networks, most))
        said += f" ({epochs_in_words(most)} at most), {at_once} at a time: {steps:,} training steps, about "
        said += f"{duration(total / at_once)} at the speed just measured"
        said += ", less where training stops early" if early else ""
    else:
        said += f", {at_once} at a time"
    classical = len(todo) - len(networks)
    if classical:
        said += f", and {classical}" if networks else ", all"
        said += " of models without epochs (seconds to minutes each)"
    plan.say(said + ".")


def run_grid(
    plan: Plan,
    variants: Sequence[Variant],
    splits: Sequence[Split] | None = None,
    *,
    reference: str | None = None,
    folder: Path | None = None,
    comparable: bool = True,
) -> GridResult:
    """Run variants on the plan's splits as a study, or complete it, and return its tables.

    Parameters
    ----------
    variants : sequence of Variant
        Those that ``plan.only`` asks for are run.
    splits : list of Split, optional
        The plan's own without it.
    reference : str, optional
        The variant that the others are compared with.
    folder : path, optional
        The study's; the plan's own without it.
    comparable : bool
        Whether splits are repeats of each other. Where they are not, a mean or a test over them means nothing:
        only ``runs.csv`` is written.
    """
    folder = folder or plan.out
    plan.check_binary()
    splits = plan.named_splits() if splits is None else splits
    kept, missing, changed = prepare(plan, variants, splits)
    there = [v.name for v in kept]
    if (folder / "study.json").is_file():
        there += [v.name for v in variants_of(folder)]
    if comparable and reference is not None and reference not in there:
        plan.say(f"{reference}, which the others are compared with, is not run: differences are to {there[0]}.")
    study = Study(
        folder,
        plan.cohort,
        plan.label,
        kept,
        splits,
        seeds=plan.seeds,
        protocol=plan.protocol,
        threads=plan.threads,
        device=plan.device,
        command=plan.command,
        cache_gb=plan.cache_gb,
        memory_gb=plan.memory_gb,
    )
    for sentence in study.cautions:
        plan.say(sentence)
    announce(plan, study)
    if plan.what:
        open_output(plan.out, plan.what)
    started = time.monotonic()
    with plan.watch() if plan.watch is not None else nullcontext(None) as board:
        where: dict[str, Any] = {"engine": plan.engine, "address": plan.address, "slurm": plan.slurm}
        failures = study.run(n_processes=plan.jobs, watch=board, **where)
    for name, reason in failures.items():
        plan.say(f"failed: {name}: {reason}")
    runs = run_table(folder)
    if runs.empty:
        raise BadInput(f"No run of {folder} finished: {next(iter(failures.values()), 'none was asked for')}")
    done = runs["variant"].unique().tolist()
    failed = {}
    for name, reason in failures.items():
        variant = name.partition("--")[0]
        if variant in done:
            failed[name] = reason.rstrip(".")
        else:
            missing.setdefault(variant, reason.rstrip("."))
    summary = comparisons = pd.DataFrame()
    if comparable:
        if reference is not None and reference in there and reference not in done:
            plan.say(f"{reference}, which the others are compared with, has no result: differences are to {done[0]}.")
        runs, summary, comparisons = write_tables(folder, reference if reference in done else done[0])
    else:
        with held(folder / ".lock"):
            write_atomic(folder / "runs.csv", runs.to_csv(index=False))
            for name in ("summary.csv", "summary.md", "comparisons.csv"):
                (folder / name).unlink(missing_ok=True)  # earlier versions wrote them
    seconds = time.monotonic() - started
    return GridResult(runs, summary, missing, seconds, folder, comparisons, variants_of(folder), failed, changed)


def variants_of(folder: Path) -> list[Variant]:
    """Return the variants of a study on disk, each with the recipe that it was trained by; none is a user's own."""
    return [Variant.from_dict(one) for one in read_study(folder)["variants"] if not is_own(one["model"])]


# -- files -------------------------------------------------------------------------------------------------------------


def cpu_time(runs: pd.DataFrame) -> float:
    """Return the CPU seconds that all runs took together; what several of them used counts once."""
    shared = runs["cpu_seconds_shared"].sum() if "cpu_seconds_shared" in runs else 0.0
    return float(runs["cpu_seconds"].sum() - shared)


def check_output(folder: Path, what: str) -> None:
    """Refuse a folder that holds another table or figure; nothing is written."""
    marker = folder / MARKER
    if marker.is_file():
        try:
            other = json.loads(marker.read_text()).get("what")
        except ValueError as error:
            raise BadInput(f"{marker} is damaged ({error}): choose another folder.", "out") from error
        if other != what:
            raise BadInput(f"{folder} holds {other!r}, not {what!r}: choose one folder per table or figure.", "out")


def open_output(folder: str | Path, what: str) -> Path:
    """Make the folder of one table or figure and mark it as such, or refuse one that holds another."""
    folder = Path(folder)
    check_output(folder, what)
    with writable(folder, "out"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARKER).is_file():
            with held(folder / ".lock"):
                if not (folder / MARKER).is_file():  # another command may have made it since
                    write_facts(folder, {"what": what})
    return folder


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write what was asked for and with which versions."""
    write_atomic(folder / MARKER, json.dumps(facts, indent=2) + "\n")


def write_outputs(folder: Path, name: str, table: pd.DataFrame, markdown: str, figure: Figure) -> list[Path]:
    """Write ``name.csv``, ``name.md``, ``name.png`` and ``name.pdf``."""
    files = [folder / f"{name}.{ending}" for ending in ("csv", "md", "png", "pdf")]
    write_atomic(files[0], table.to_csv(index=False))
    write_atomic(files[1], markdown)
    for file in files[2:]:
        save_figure(figure, file)
    return files


# -- Markdown ----------------------------------------------------------------------------------------------------------


def rows(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    text = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(text + ["| " + " | ".join(line) + " |" for line in lines]) + "\n"


def skipped(result: GridResult) -> str:
    """Return what was changed, skipped or failed, and why."""
    return (
        changed_to_fit(result.fitted)
        + not_run(result.missing)
        + listed("Failed runs; the numbers are from the others:", result.failed)
    )


def changed_to_fit(changed: Mapping[str, str]) -> str:
    """Return which defaults were changed to fit the cohort."""
    return listed("Changed:", changed)


def not_run(missing: Mapping[str, str]) -> str:
    """Return what has no result, and why."""
    return listed("Not run, or failed:", missing)


def listed(heading: str, reasons: Mapping[str, str]) -> str:
    """Return names and their reasons under a heading, names with the same reason in one line; nothing for none."""
    together: dict[str, list[str]] = {}
    for name, why in reasons.items():
        together.setdefault(why, []).append(f"`{name}`")
    lines = "".join(f"- {', '.join(names)}: {why}.\n" for why, names in together.items())
    return f"\n{heading}\n\n{lines}" if lines else ""


def training(variants: Sequence[Variant], runs: pd.DataFrame) -> str:
    """Return recipe, epochs, batch size and stopping of the networks among the runs; exceptions are named after them.

    Parameters
    ----------
    variants : sequence of Variant
    runs : DataFrame
        One row per run, with ``variant`` and ``n_train``: a small training set is passed over more often.
    """
    found: dict[str, list[str]] = {}
    for variant in variants:
        sizes = runs.loc[runs["variant"] == variant.name, "n_train"]
        if not len(sizes) or not find_entry(variant.model).trains_in_epochs:
            continue
        most = [most_epochs(variant.recipe, int(n)) for n in sizes]
        said = f"recipe `{variant.recipe_name}`, {epochs_in_words(most)} at most, batch {variant.recipe.batch_size}"
        said += stopping_words(variant.recipe, max(most))
        found.setdefault(said, []).append(variant.name)
    if not found:
        return ""
    usual = max(found, key=lambda said: len(found[said]))
    common = usual.partition(",")[0] + ", "  # the recipe's name is not said twice
    others = [
        f"{', '.join(f'`{name}`' for name in names)}: {said.removeprefix(common)}"
        for said, names in found.items()
        if said != usual
    ]
    return usual + (f" ({'; '.join(others)})" if others else "")


def stopping_words(recipe: Recipe, epochs: int) -> str:
    """Return when training ends before its last epoch; nothing where it cannot."""
    if recipe.select == "last" or not 0 < recipe.patience < epochs:
        return ""
    smoothed = f" (mean of {recipe.smooth} epochs)" if recipe.select == "smoothed" else ""
    return f", stopped after {recipe.patience} epochs without a better validation AUROC{smoothed}"


def circumstances(plan: Plan, result: GridResult, *, printed: bool = True) -> str:
    """Return the sentence that says which data, splits and recipe the numbers are from.

    Parameters
    ----------
    printed : bool
        Whether numbers of the paper stand beside ours.
    """
    runs = result.runs
    n = runs["split"].str.partition("+")[0].nunique()  # shares of a training set are one split
    said = f"\nOurs: {about(plan.cohort)}, label `{plan.label}`; protocol `{plan.protocol}`, "
    said += f"{n} split{'s' * (n != 1)}; mean ± SD over splits"
    recipe = training(result.variants, runs)
    said += f"; {recipe}." if recipe else "."
    said += f" CPU time of all runs: {duration(cpu_time(runs))}."
    return said + "\n" + (f"Paper: as printed for {plan.dataset}, {N_RUNS} runs.\n" if printed else "")


def about(cohort: Cohort) -> str:
    """Return the cohort in a few words."""
    kind = KINDS.get(cohort.kind)
    return f"{len(cohort):,} subjects, {cohort.n_rois} ROIs ({kind.description if kind else cohort.kind})"
