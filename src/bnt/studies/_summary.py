"""The tables of a study as files and text: summary, notes, and the primary p-value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bnt._words import p_value, p_words, shown_name
from bnt.cohort._files import held, readable, write_atomic, write_sums, wrong_sum
from bnt.errors import BadInput
from bnt.studies._chance import adjusted_notes, chance_table, chance_words, read_covariates
from bnt.studies._results import comparison_table, read_study, run_table, score_name, summary_table

TABLES = ("runs.csv", "summary.csv", "comparisons.csv", "summary.md")
SUMS = "tables.sha256"
TABLES_SECONDS = 3600.0  # another command that makes tables may draw many permutations
NOTHING = "–"  # what a table shows where there is no number


def read_tables(folder: Path) -> list[pd.DataFrame] | None:
    """Read runs, summary and comparisons as :func:`write_tables` wrote them; None where it has not yet.

    Tables of bnt 0.2 have no digests: there it is checked that they are tables.
    """
    files = [folder / name for name in TABLES[:3]]
    if not all(file.is_file() for file in files):
        return None
    wrong = wrong_sum(folder / SUMS, TABLES) if (folder / SUMS).is_file() else None
    if wrong is not None:
        raise BadInput(f"{folder / wrong[0]} is damaged ({wrong[1]}): repeat the bnt compare command.")
    with readable(folder, "repeat the bnt compare command"):
        return [pd.read_csv(f, encoding="utf-8") if f.stat().st_size > 1 else pd.DataFrame() for f in files]


class Primary(NamedTuple):
    """The one p-value that tables show: its column in the files, and what a heading calls it; empty where none is."""

    column: str = ""
    heading: str = ""


def primary_p(summary: pd.DataFrame, comparisons: pd.DataFrame) -> Primary:
    """Return the primary p-value: of the difference from the reference or, of one model, against chance."""
    if len(comparisons) and np.isfinite(comparisons["p_corrected_holm"].astype(float)).any():
        return Primary("p_corrected_holm", "p (corrected t-test, Holm)")
    if not len(comparisons) and "p_chance" in summary and np.isfinite(summary["p_chance"].astype(float)).any():
        return Primary("p_chance", "p (against chance)")
    return Primary()


def chance_note(summary: pd.DataFrame, primary: Primary) -> list[str]:
    """Return p against chance and how it was found, as a sentence; where it is the primary one, how it was found."""
    how = chance_words(summary)
    if not how:
        return []
    if primary.column == "p_chance":
        return [f"p is against chance: {how}."]
    chance = summary.dropna(subset="p_chance")
    shown = ", ".join(f"{name} {p_words(p)}" for name, p in zip(chance["variant"], chance["p_chance"]))
    return [f"Against chance ({how}): {shown}."]


def markdown_table(
    summary: pd.DataFrame, comparisons: pd.DataFrame, by_site: bool = False, alone: pd.DataFrame | None = None
) -> str:
    """Return the headline as a Markdown table, in per cent for classes; also within sites; covariates alone below."""
    shown_of = ("auroc", *(["auroc_within_site"] if by_site else []), "accuracy", "sensitivity", "specificity")
    columns = [c for c in shown_of if c in summary] or [c for c in ("r", "r2", "mae") if c in summary]
    scale = 100 if "auroc" in summary else 1
    digits = 1 if scale == 100 else 3
    primary = primary_p(summary, comparisons)
    heads = ["model", *(shown_name(c) for c in columns), "splits", "difference [95 %]"]
    heads += [primary.heading or "p", "CPU s"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    found = comparisons.set_index("variant") if len(comparisons) else pd.DataFrame()

    def shown(row: pd.Series, column: str) -> str:
        if not np.isfinite(row[column]):
            return NOTHING
        text = f"{scale * row[column]:.{digits}f}"
        if np.isfinite(row[f"{column}_sd"]):
            text += f" ± {scale * row[f'{column}_sd']:.{digits}f}"
        return text if row[f"{column}_n"] == row["n_splits"] else f"{text} (n = {row[f'{column}_n']})"

    for _, row in summary.iterrows():
        cells = [row["variant"], *(shown(row, c) for c in columns), str(row["n_splits"])]
        if row["variant"] in found.index:
            one = found.loc[row["variant"]]
            difference = f"{scale * one['difference']:+z.{digits}f}" if np.isfinite(one["difference"]) else NOTHING
            low, high = (f"{scale * one[side]:+z.{digits}f}" for side in ("low", "high"))
            span = f" [{low}, {high}]" if np.isfinite(one["low"]) else f" [{NOTHING}]"
            cells += [difference + (span if difference != NOTHING else ""), p_value(one["p_corrected_holm"], NOTHING)]
        else:
            cells += ["reference", p_value(row["p_chance"], NOTHING) if primary.column == "p_chance" else ""]
        lines.append("| " + " | ".join([*cells, f"{row['cpu_seconds']:.1f}"]) + " |")
    for _, row in (pd.DataFrame() if alone is None else alone).iterrows():
        cells = [row["variant"], *(shown(row, c) if c in row else NOTHING for c in columns)]
        cells += [str(row["n_splits"]), "not tested"]
        lines.append("| " + " | ".join([*cells, "", NOTHING]) + " |")
    return "\n".join(lines) + "\n"


def notes(runs: pd.DataFrame, comparisons: pd.DataFrame) -> list[str]:
    """Return what the table cannot show, in sentences: whose recall is meant, what is undefined or has no p."""
    metric, found = score_name(runs), []
    name = "AUROC" if metric == "auroc" else metric
    if "positive_class" in runs:
        found.append(
            f"Sensitivity is the recall of {runs['positive_class'].iloc[0]}, specificity that of the other class."
        )
    if runs["split"].str.startswith("released:").any():
        found.append(
            "The authors' splitter has one training set: intervals and p are of the draw of test subjects alone, and "
            "say nothing about other training subjects."
        )
    gone = runs[runs[metric].isna()]
    if metric == "auroc" and len(gone):
        why = "one class in its test set" if "sensitivity" in runs else "a class is missing from its test set"
        names = gone["split"].unique().tolist()
        found.append(
            f"{name} is undefined on split{'s' * (len(names) > 1)} {', '.join(names)} ({why}): n is the number of "
            "splits behind a mean, and tests are over splits that have it."
        )
    elif len(gone):
        found.append(
            f"{name} is undefined in {', '.join(gone['run'])} (all predictions, or all labels, are the same): n is "
            "the number of splits behind a mean."
        )
    for _, row in comparisons.iterrows():
        if row["n_splits"] > 1 and np.isfinite(row["difference"]) and not np.isfinite(row["p_corrected"]):
            found.append(
                f"{row['variant']} differs from {row['reference']} by the same amount on all {row['n_splits']} splits, "
                "so that there is no interval and no p."
            )
    if len(comparisons) and (comparisons["n_splits"] < 2).any():
        found.append("A difference on one split has no interval and no p.")
    return found + adjusted_notes(runs)


def write_tables(
    folder: str | Path, reference: str | None = None, n_permutations: int = 0, refitted: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Make and write ``runs.csv``, ``summary.csv``, ``comparisons.csv`` and ``summary.md``.

    Parameters
    ----------
    folder : path
        The study's folder.
    reference : str, optional
        The variant that the others are compared with; the first finished one without it.
    n_permutations : int
        Permutations of the permutation tests; 0 leaves them out.
    refitted : sequence of str
        Variants whose models were fitted anew with permuted labels (:func:`bnt.studies._chance.run_permuted`).
    """
    with held(Path(folder) / ".lock", wait=TABLES_SECONDS):  # whoever comes last has read all runs
        return _write_tables(Path(folder), reference, n_permutations, refitted)


def _write_tables(
    folder: Path, reference: str | None, n_permutations: int, refitted: Sequence[str]
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Do what :func:`write_tables` promises, under the study's lock."""
    runs = run_table(folder)
    if runs.empty:
        raise BadInput(f"{folder} has no finished run yet.")
    summary = summary_table(runs)
    variants = [str(name) for name in summary["variant"]]
    chosen = reference or variants[0]
    if chosen not in variants:
        raise BadInput(f"There is no finished variant {chosen!r}; there are {', '.join(variants)}.")
    comparisons = comparison_table(folder, runs, chosen, n_permutations)
    if n_permutations:
        chance = chance_table(folder, runs, variants, n_permutations, refitted)
        if chance["p_chance"].notna().any():
            summary = summary.join(chance)
    (folder / SUMS).unlink(missing_ok=True)
    write_atomic(folder / "runs.csv", runs.to_csv(index=False))
    write_atomic(folder / "summary.csv", summary.to_csv(index=False))
    write_atomic(folder / "comparisons.csv", comparisons.to_csv(index=False))
    caution = str(read_study(folder).get("site_caution") or "")
    said = [*notes(runs, comparisons), *chance_note(summary, primary_p(summary, comparisons))]
    said += [caution] if caution else []
    alone = read_covariates(folder, runs["split"].unique().tolist())
    text = "\n".join([markdown_table(summary, comparisons, bool(caution), alone), *said])
    write_atomic(folder / "summary.md", text.rstrip("\n") + "\n")
    write_sums(folder / SUMS, TABLES)
    return runs, summary, comparisons
