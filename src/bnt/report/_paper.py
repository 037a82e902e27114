"""The folder of ``bnt report --paper``: methods, tables, figures, a checklist and model cards."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.text import Text

from bnt._words import counted, heading, p_value, shown, shown_name
from bnt.cohort._files import new_folder, without_folders
from bnt.cohort._inspect import people_of
from bnt.errors import BadInput
from bnt.plotting._style import save_figure
from bnt.report import _evidence as evidence
from bnt.report._methods import CITED, as_latex, as_markdown, bibtex, checklist, cited, latex, methods
from bnt.report._render import Chart, shareable
from bnt.report._study_page import mean_sd, planned_runs, stored_tables, study_leak, study_page
from bnt.splits import read_splits
from bnt.studies._chance import chance_words
from bnt.studies._results import SCORES, read_study, run_table, score_name
from bnt.studies._summary import NOTHING, notes, primary_p

ONE_COLUMN, TWO_COLUMNS = 85 / 25.4, 180 / 25.4  # inches of a journal's columns
STRETCH = 1.06  # a figure drawn for one column is a little wider than 85 mm
DPI = 300
MOST_COLUMNS = 4  # of a LaTeX table in letters of the usual size
HEADING_LETTERS = 14  # in a line of a heading of such a table
NUMBERS = {"age": ("Age in years, mean (SD)", 1), "fiq": ("IQ, mean (SD)", 1)}
NUMBERS |= {"mean_fd": ("Mean FD in mm, mean (SD)", 3)}
SKEWED = ("mean_fd",)  # compared by ranks
CAPTIONS = {  # of the page's figures: the name of the file, and what it shows
    "paired": ("paired", "Test {score} of every model on every split, joined by split; bars are means."),
    "forest": ("forest", "Paired differences in test {score} from the reference, with corrected 95 % intervals."),
    "roc": (
        "roc",
        "ROC curves of each person's test predictions, averaged over splits. The AUROC in the legend pools all people, "
        "so it differs from the mean over splits in the table.",
    ),
    "calibration": (
        "calibration",
        "Observed share of the positive class against predicted probability, with 95 % intervals.",
    ),
    "decision": ("decision", "Net benefit of treating those above a threshold probability, all, or none."),
    "sites": ("sites", "AUROC within each site (number of people), with 95 % intervals."),
    "confusion": ("confusion", "True and predicted classes, in per cent of the people of each true class."),
    "scores": ("scores", "Predicted against true scores, with the fitted line and its 95 % interval."),
    "chart": ("cost", "Mean test {score} against the CPU time of one run."),
    "curves": ("validation", "Validation score by epoch, one line per run."),
}
OF_FEW = ("calibration", "decision", "sites", "confusion", "scores")  # figures of a few models
EXPECTED = 5  # smallest expected count for a chi-square test of two by two


def write_paper(folder: str | Path, out: str | Path, *, overwrite: bool = False) -> Path:
    """Write methods, tables, figures, checklist and model cards of a finished study into ``out``; return it.

    Parameters
    ----------
    folder : path
        Made by ``bnt compare``; all its runs are finished.
    out : path
        The folder to write. It names no subject and no folder.
    overwrite : bool
        Replace such a folder.
    """
    folder, out = Path(folder), Path(out)
    if not (folder / "study.json").is_file():
        raise BadInput(f"{folder} is not a study: a paper's tables and figures are made from what bnt compare made.")
    study, runs = read_study(folder), run_table(folder)
    planned = planned_runs(study)
    if len(runs) < len(planned):
        raise BadInput(
            f"{len(runs)} of {len(planned)} runs of {folder} are finished: finish it before writing a paper."
        )
    cohort = evidence.look_up_cohort(study["cohort"])
    leak = study_leak(folder, planned, cohort)
    if leak:
        raise BadInput(f"{folder} has a leak, so it cannot be used for a paper: {leak}.")
    summary, comparisons = stored_tables(folder, runs)
    people = scanned(folder, planned, cohort)
    name, primary = primary_test(summary, comparisons)
    text = methods(folder, study, cohort, people, runs, summary, comparisons, primary)
    ids = [] if people is None else people["participant_id"].tolist()
    text, shared, compared = shareable([text, summary, comparisons], [study["cohort"], folder], ids)
    with new_folder(out, overwrite=overwrite, marker="methods.md") as work:
        (work / "methods.md").write_text("# Methods\n\n" + "\n\n".join(map(as_markdown, text)) + "\n")
        (work / "methods.tex").write_text("\\section*{Methods}\n\n" + "\n\n".join(map(as_latex, text)) + "\n")
        (work / "references.bib").write_text(bibtex(cited(text)))
        if people is not None:
            table = demographics(people, study["label"], cohort, regression=score_name(runs) == "r")
            write_table(
                work,
                "demographics",
                table,
                shown_demographics(table),
                "Participants; p-values are not corrected for several measures.",
            )
        caption = " ".join([f"Test scores over {counted(len(study['splits']), 'split')}, mean ± SD.", primary])
        caption = CITED.sub("", caption).replace("`", "").replace(" ,", ",").replace(" .", ".").replace("  ", " ")
        caption = " ".join([caption, *map(without_advice, notes(runs, compared))])
        write_table(
            work, "results", results(shared, compared, name), shown_results(shared, compared, score_name(runs)), caption
        )
        page = study_page(folder)
        if page["tested"]["recalls"] is not None:
            said = "Recall (Wilson) and AUROC (DeLong) of each class with 95 % intervals; each person counts once."
            write_table(work, "classes", page["tested"]["recalls_full"], page["tested"]["recalls"], said)
        write_figures(work / "figures", page)
        cards = model_cards(folder, planned, len(study["splits"]) * len(study["seeds"]))
        if cards:
            (work / "model_card.md").write_text(shareable(cards, [study["cohort"], folder], ids))
        (work / "checklist.md").write_text(checklist(work))
    return out


def without_advice(sentence: str) -> str:
    """Return a caution as a paper says it: what was found, not which option to try."""
    found = sentence.removeprefix("Caution: ")
    return found if found == sentence else found.partition("; --")[0].rstrip(".") + "."


def scanned(folder: Path, planned: list[tuple[str, str, str]], cohort: evidence.CohortFacts) -> pd.DataFrame | None:
    """Return the rows of everyone in the study's splits; None where the cohort is gone or lacks some of them."""
    if cohort.participants is None:
        return None
    runs = {split: run for _, split, run in planned}
    files = [folder / "runs" / run / "splits.csv" for run in runs.values()]
    ids = {name for file in files for part in read_splits(file)[0].parts.values() for name in part}
    rows = cohort.participants[cohort.participants["participant_id"].isin(ids)]
    return rows.reset_index(drop=True) if len(rows) == len(ids) else None


def primary_test(summary: pd.DataFrame, comparisons: pd.DataFrame) -> tuple[str, str]:
    """Return the column of the one primary p-value, and a sentence about it; empty where there is none."""
    primary = primary_p(summary, comparisons)
    if primary.column == "p_corrected_holm":
        reference = without_folders(str(comparisons["reference"].iloc[0]))
        holm = f", after Holm's correction for {len(comparisons)} comparisons {{{{Holm 1979}}}}"
        holm = holm if len(comparisons) > 1 else ""
        return "p_corrected_holm", (
            f"The primary p-value is of the paired difference from `{reference}` over splits: a corrected resampled "
            f"t-test {{{{Nadeau 2003}}}}, two-sided{holm}."
        )
    if primary.column == "p_chance":
        how = chance_words(summary)
        return "p_chance", f"The primary p-value is against chance, (b + 1) / (m + 1): {how} {{{{Phipson 2010}}}}."
    return "", ""


# -- tables ----------------------------------------------------------------------------------------


def write_table(folder: Path, name: str, table: pd.DataFrame, shown: pd.DataFrame, caption: str) -> None:
    """Write all numbers as CSV, and what a reader sees as Markdown and LaTeX."""
    table.to_csv(folder / f"{name}.csv", index=False)
    cells = [[str(c) for c in shown.columns], *([str(v) for v in row] for row in shown.to_numpy().tolist())]
    plain = [[cell.replace("|", "\\|") for cell in row] for row in cells]
    rule = "|---" * len(cells[0]) + "|"
    lines = [f"| {' | '.join(row)} |" for row in plain]
    (folder / f"{name}.md").write_text("\n".join([lines[0], rule, *lines[1:], "", caption]) + "\n")
    rows = [" & ".join(row) + r" \\" for row in (map(stacked, cells[0]), *(map(latex, row) for row in cells[1:]))]
    words = [not any(letter.isdigit() for cell in column[1:] for letter in cell) for column in zip(*cells)]
    sides = "".join("l" if text else "r" for text in words[1:])  # words begin, and numbers end, below each other
    wide = len(cells[0]) > MOST_COLUMNS  # it is made as wide as the text, in place of running into the margin
    (folder / f"{name}.tex").write_text(
        "\n".join(
            [
                "% needs the packages booktabs and graphicx",
                r"\begin{table}",
                rf"\caption{{{latex(caption)}}}\label{{tab:{name}}}\smallskip",
                r"\footnotesize\setlength{\tabcolsep}{3pt}",
                *([r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%"] if wide else []),
                rf"\begin{{tabular}}{{l{sides}}}",
                r"\toprule",
                rows[0],
                r"\midrule",
                *rows[1:],
                r"\bottomrule",
                r"\end{tabular}" + ("}" if wide else ""),
                r"\end{table}",
            ]
        )
        + "\n"
    )


def stacked(head: str) -> str:
    """Return a column's heading for LaTeX, on lines of a few letters where it is long: numbers below it are short."""
    kept = head.replace(" %", "\N{NO-BREAK SPACE}%")  # which wrap does not break
    lines = wrap(kept, HEADING_LETTERS, break_long_words=False, break_on_hyphens=False)
    lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
    if len(lines) < 2:
        return latex(head)
    cells = r" \\ ".join(map(latex, lines))
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{cells}\end{{tabular}}"


def results(summary: pd.DataFrame, comparisons: pd.DataFrame, primary: str) -> pd.DataFrame:
    """Return the summary with each model's comparison beside it, and which column is the primary p-value."""
    table = summary.copy()
    if len(comparisons):
        names = {"n_splits": "difference_n_splits", "low": "difference_low", "high": "difference_high"}
        table = table.merge(comparisons.rename(columns=names), on="variant", how="left")
    return table.assign(primary_p=primary)


def shown_results(summary: pd.DataFrame, comparisons: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the table of a paper: scores, the paired difference, and the one primary p-value, named."""
    primary = primary_p(summary, comparisons)
    table = pd.DataFrame({"model": summary["variant"]})
    columns = [
        c
        for c in ("auroc", "accuracy", "sensitivity", "specificity", "brier", "r", "r2", "mae", "medae")
        if c in summary
    ]
    for column in [metric, *(c for c in columns if c != metric)]:
        table[heading(column)] = [mean_sd(row, column) or NOTHING for _, row in summary.iterrows()]
        if column == metric or column in SCORES:
            name = "95 % interval" if column == metric else f"{shown_name(column)} 95 %"
            table[name] = [span(row[f"{column}_low"], row[f"{column}_high"], column) for _, row in summary.iterrows()]
    if len(comparisons):
        rows = {row["variant"]: row for _, row in comparisons.iterrows()}
        found = [rows.get(name) for name in summary["variant"]]
        table["difference [95 %]"] = [
            "reference"
            if row is None
            else f"{shown(row['difference'], metric, '+', NOTHING)} [{span(row['low'], row['high'], metric, '+')}]"
            for row in found
        ]
        if primary.column:
            table[primary.heading] = ["" if row is None else p_value(row[primary.column], NOTHING) for row in found]
    elif primary.column:
        table[primary.heading] = [p_value(p, NOTHING) for p in summary[primary.column]]
    return table


def span(low: float, high: float, metric: str, sign: str = "") -> str:
    """Return both ends of an interval."""
    ends = [shown(end, metric, sign, like=min(abs(low), abs(high))) for end in (low, high)]
    return " to ".join(ends) if all(ends) else NOTHING


def demographics(people: pd.DataFrame, label: str, cohort: evidence.CohortFacts, *, regression: bool) -> pd.DataFrame:
    """Return what is known of the people by class, with tests; one person has one row of ``people``, the first.

    Numbers are compared by Welch's t-test, or by ranks where they are skewed (Mann-Whitney) or classes are more than
    two (Kruskal-Wallis); sex and sites by a chi-square test, or Fisher's where a two-by-two table is small. A score is
    correlated with numbers by ranks (Spearman), and compared between sexes and sites by ranks.
    """
    people = people.assign(_person=people_of(people)).drop_duplicates("_person")
    target = pd.to_numeric(people[label], errors="coerce") if regression else people[label]
    people, target = people[target.notna()], target[target.notna()]
    if regression:
        groups = {"everyone": people}
    else:
        values = sorted(target.unique(), key=str)
        groups = {cohort.class_name(label, v): people[target == v] for v in values}
    blank = {"missing": 0, "test": "", "statistic": np.nan, "p": np.nan}
    rows: list[dict[str, Any]] = [{"measure": "People", **{n: str(len(g)) for n, g in groups.items()}, **blank}]
    measures = ({label: (f"{label}, mean (SD)", 2)} if regression else {}) | NUMBERS
    for column, (title, digits) in measures.items():
        if column not in people or (column == label and not regression):
            continue
        x = pd.to_numeric(people[column], errors="coerce")
        if not x.notna().any():
            continue
        parts = {name: x[group.index].dropna() for name, group in groups.items()}
        cells = {
            n: f"{v.mean():.{digits}f} ({v.std():.{digits}f})" if len(v) > 1 else NOTHING for n, v in parts.items()
        }
        test = blank
        if column != label:
            test = correlated(x, target) if regression else compared(list(parts.values()), column in SKEWED)
        rows.append({"measure": title, **cells, **blank, **test, "missing": int(x.isna().sum())})
    for column in ("sex", "site"):
        if column not in people or column == label or not people[column].notna().any():
            continue
        known = people[column].astype("string")
        names = sorted(known.dropna().unique())
        if column == "sex":
            title = f"Sex, {' / '.join(names)}"
            cells = {n: " / ".join(str(int((known[g.index] == v).sum())) for v in names) for n, g in groups.items()}
        else:
            title, cells = "Sites", {n: str(known[g.index].nunique()) for n, g in groups.items()}
        one = known.notna()
        if regression:
            test = compared([target[known == v] for v in names], skewed=True)
        else:
            test = counts_compared(pd.crosstab(known[one], target[one]).to_numpy())
        rows.append({"measure": title, **cells, **blank, **test, "missing": int(known.isna().sum())})
    return pd.DataFrame(rows)


def compared(groups: list[pd.Series], skewed: bool) -> dict[str, Any]:
    """Test whether groups differ in a number."""
    from scipy import stats

    groups = [g for g in groups if len(g) > 1]
    if len(groups) < 2 or np.ptp(np.concatenate(groups)) == 0:
        return {}
    if len(groups) > 2:
        return {"test": "Kruskal-Wallis", **numbers(stats.kruskal(*groups))}
    if skewed:
        return {"test": "Mann-Whitney", **numbers(stats.mannwhitneyu(*groups))}
    return {"test": "Welch's t-test", **numbers(stats.ttest_ind(*groups, equal_var=False))}


def correlated(x: pd.Series, y: pd.Series) -> dict[str, Any]:
    """Test whether a number goes with the score."""
    from scipy import stats

    both = x.notna() & y.notna()
    if both.sum() < 3 or x[both].nunique() < 2 or y[both].nunique() < 2:
        return {}
    return {"test": "Spearman", **numbers(stats.spearmanr(x[both], y[both]))}


def counts_compared(table: np.ndarray) -> dict[str, Any]:
    """Test whether classes differ in counts."""
    from scipy import stats

    if min(table.shape) < 2:
        return {}
    found = stats.chi2_contingency(table, correction=False)
    if table.shape == (2, 2) and found.expected_freq.min() < EXPECTED:
        return {"test": "Fisher's exact", **numbers(stats.fisher_exact(table))}
    return {"test": "chi-square", **numbers(found)}


def numbers(found: Any) -> dict[str, float]:
    """Return statistic and p of a test of scipy."""
    return {"statistic": float(found.statistic), "p": float(found.pvalue)}


def shown_demographics(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a paper: p in words, statistics and missing values in the CSV unless some are missing."""
    shown = table.drop(columns="statistic").assign(p=[p_value(p) for p in table["p"]])
    return shown if table["missing"].any() else shown.drop(columns="missing")


# -- figures and cards -----------------------------------------------------------------------------


def write_figures(folder: Path, page: dict[str, Any]) -> None:
    """Write every figure of a study's page as vector PDF and as PNG, one or two columns of a journal wide."""
    folder.mkdir()
    captions = ["# Captions", ""]
    drawn = page["tested"]
    fewer = (
        f"{drawn['n_few']} of {drawn['n_order']} models ({drawn['few']})" if drawn["n_few"] < drawn["n_order"] else ""
    )
    for section in ("result", "tested", "cost", "training"):
        for name, chart in (page[section] or {}).items():
            if not isinstance(chart, Chart):
                continue
            figure = chart.figure
            for text in figure.findobj(Text):
                text.set_text(without_folders(text.get_text()))
            wide = figure.get_figwidth() > STRETCH * ONE_COLUMN
            figure.set_figwidth(TWO_COLUMNS if wide else ONE_COLUMN)
            title, caption = CAPTIONS.get(name, (name, ""))
            for kind in ("pdf", "png"):
                save_figure(figure, folder / f"{title}.{kind}", dpi=DPI)
            only = f" Shown are {fewer}." if fewer and name in OF_FEW else ""
            captions.append(f"- {title} ({180 if wide else 85} mm): {caption.format(score=page['metric'])}{only}")
    (folder / "captions.md").write_text("\n".join(captions) + "\n")


def model_cards(folder: Path, planned: list[tuple[str, str, str]], n_runs: int) -> str:
    """Return the card of each model's first run that has one."""
    first: dict[str, Path] = {}
    for variant, _, run in planned:
        if (card := folder / "runs" / run / "model_card.md").is_file():
            first.setdefault(variant, card)
    head = f"These cards are of the first of {counted(n_runs, 'run')} of each model.\n\n"
    return head + "\n---\n\n".join(card.read_text() for card in first.values()) if first else ""
