"""The text of ``bnt info``: findings about a cohort, warnings to check before training, and tables of counts."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from bnt.cohort._scans import SAME_SCAN

if TYPE_CHECKING:
    from bnt.cohort._inspect import Inspection, Part, Score

FISHER_KINDS = ("shrunk-z", "fisher-z")
FEW_VOLUMES = 100  # fewer were left out of the paper's cohort
SMALL_SITE = 10  # fewer in a class cannot be spread over training, validation and test
STRONG_SITE = 0.2  # Cramer's V of site and class, corrected for chance: site alone then has an AUROC of about 0.6
FEW_AT_SITE = 5  # of fewer people a share says nothing
LARGE_DIFFERENCE = 0.2  # standard deviations: small by convention, enough to be learned from


@dataclass
class Check:
    """One thing that was looked at: in order, worth knowing, or to be settled before training."""

    name: str
    state: Literal["ok", "note", "warning"]
    text: str


def checks_of(report: Inspection) -> list[Check]:
    """Return everything that was looked at, in order."""
    return [*_values(report), *_signals(report), *_duplicates(report), *_design(report), *_files(report)]


def _some(people: list[str], most: int = 3) -> str:
    """Return a few names, and how many more there are."""
    more = f" and {len(people) - most} more" if len(people) > most else ""
    return ", ".join(people[:most]) + more


def _values(report: Inspection) -> Iterator[Check]:
    values = report.values
    if values.not_finite:
        yield Check(
            "finite values",
            "warning",
            f"{len(values.not_finite)} subjects have {sum(values.not_finite.values())} NaN or infinite entries in all: "
            f"{_some(list(values.not_finite))}",
        )
    else:
        yield Check("finite values", "ok", "no NaN, no infinity")
    span = f"{values.smallest:.3f} to {values.largest:.3f}, mean {values.mean:.3f}"
    fisher = report.kind in FISHER_KINDS
    if fisher and not values.beyond_one:
        yield Check(
            "range",
            "warning",
            f"{span}: declared {report.kind}, but no entry lies beyond [-1, 1]; is it Pearson given as Fisher z?",
        )
    elif fisher or not values.beyond_one:
        yield Check("range", "ok", f"{span}{'' if fisher else '; all within [-1, 1]'}")
    elif len(values.beyond_one) > report.n_subjects / 2:
        yield Check(
            "range",
            "warning",
            f"{span}: {len(values.beyond_one)} of {report.n_subjects} subjects have entries beyond [-1, 1] "
            f"({values.beyond_one_share:.2%} of all); this looks like Fisher z given as {report.kind}",
        )
    else:
        yield Check(
            "range",
            "warning",
            f"{span}: {len(values.beyond_one)} subjects have entries beyond [-1, 1]: {_some(list(values.beyond_one))}",
        )
    uneven = [f for f in report.findings if f.get("check") == "asymmetric"]
    if uneven:
        people = [str(f["participant_id"]) for f in uneven]
        largest = max(float(f["value"]) for f in uneven)
        yield Check(
            "symmetry",
            "warning",
            f"{len(people)} matrices of the source were not symmetric, by up to {largest:.2g}; their halves were "
            f"averaged: {_some(people)}",
        )
    else:
        yield Check("symmetry", "ok", "no matrix of the source was asymmetric")


def _signals(report: Inspection) -> Iterator[Check]:
    silent = report.values.without_signal
    if silent:
        worst = sorted(silent, key=lambda who: -silent[who])
        named = ", ".join(f"{who} {silent[who]}" for who in worst[:4])
        yield Check(
            "ROIs with a signal",
            "note",
            f"{len(silent)} subjects have {sum(silent.values())} constant or missing ROIs (their edges are 0); "
            f"most: {named}",
        )
        often = {i: n for i, n in report.values.without_signal_by_roi.items() if n > 0.05 * report.n_subjects}
        if often:
            named = ", ".join(f"{i + 1} ({n})" for i, n in sorted(often.items(), key=lambda item: -item[1])[:6])
            yield Check("ROI coverage", "warning", f"ROIs missing in more than 5 % of the subjects: {named}")
    else:
        yield Check("ROIs with a signal", "ok", "every ROI of every subject has edges")
    dropped = [f for f in report.findings if f.get("check") == "too short"]
    if dropped:
        most = max(int(f["value"]) for f in dropped)
        yield Check(
            "scans left out", "note", f"{len(dropped)} scans of {most} volumes or fewer were left out as too short"
        )
    if report.volumes is not None:
        if report.volumes[0] < FEW_VOLUMES:
            yield Check("scan length", "note", f"the shortest scan has {report.volumes[0]} volumes{_short(report)}")
        else:
            yield Check("scan length", "ok", f"{report.volumes[0]} volumes or more")


def _short(report: Inspection) -> str:
    """Return where every scan is short: everywhere, or at the sites named."""
    sites = [site for site in report.sites if site.volumes is not None and site.volumes[1] < FEW_VOLUMES]
    if report.volumes is not None and report.volumes[2] < FEW_VOLUMES:
        return f"; every scan has fewer than {FEW_VOLUMES}"
    if not sites:
        return ""
    names, n = _some([site.name for site in sites]), sum(site.n for site in sites)
    return f"; all {n} subjects of {names} have fewer than {FEW_VOLUMES}"


def _duplicates(report: Inspection) -> Iterator[Check]:
    pairs = report.values.duplicates
    for finding in report.findings:
        who, twin = str(finding.get("participant_id")), finding.get("value")
        if finding.get("check") == "same scan" and who not in report.family_of:
            yield Check("duplicate scans", "note", f"{who} was left out: the same scan as {twin}, byte for byte")
    near = report.values.near_duplicates
    if not pairs and not near:
        yield Check("duplicate scans", "ok", "no two connectomes are the same, or nearly so")
    alike = f"the same to within {SAME_SCAN:.0%} of the spread of their edges (other rounding, a little noise?)"
    for people, sign, how in [*((p, "=", "byte for byte") for p in pairs), *((p, "≈", alike) for p in near)]:
        together = len({report.family_of[who] for who in people}) == 1
        yield Check(
            "duplicate scans",
            "note" if together else "warning",
            f"{f' {sign} '.join(people)}, {how}; "
            + (
                "one family, so no split separates them"
                if together
                else "not in one family: our splits keep them together, others may not"
            ),
        )


def _design(report: Inspection) -> Iterator[Check]:
    if report.families[0]:
        n, people = report.families
        yield Check("families", "ok", f"{n} of two people or more, {people} people in all; no split separates them")
    if report.label is None:
        yield Check("label", "note", "no column of classes to count by; --label COLUMN describes a score")
        return
    unknown = report.missing.get(report.label, 0)
    if unknown:
        yield Check(report.label, "warning", f"missing for {unknown} subjects")
    if report.score is not None:
        return
    if len(report.levels) < 2:
        yield Check(report.label, "warning", "one class only: nothing to learn")
        return
    lonely = [site.name for site in report.sites if sum(n > 0 for n in site.classes.values()) < 2]
    small = [site.name for site in report.sites if 0 < min(site.classes.values()) < SMALL_SITE]
    if lonely:
        yield Check("classes at sites", "warning", f"only one class at {_some(lonely, 6)}: site gives the label away")
    else:
        yield Check("classes at sites", "ok", "every site has every class")
    confound = site_confound(
        {site.name: list(site.classes.values()) for site in report.sites},
        [f"{report.label} = {name}" for name in report.levels.values()],
    )
    if confound:
        yield Check("classes by site", "warning", confound)
    if small:
        yield Check("site sizes", "note", f"fewer than {SMALL_SITE} of a class at {_some(small, 6)}")
    first, second = [*report.levels.values()][:2]
    for column, d in report.differences.items():
        if abs(d) >= LARGE_DIFFERENCE:
            more = "higher" if d > 0 else "lower"
            yield Check("confounds", "note", f"{column} is {more} in {second} than in {first}, by {abs(d):.2f} SD")


def site_confound(counts: Mapping[str, Sequence[int]], classes: Sequence[str]) -> str:
    """Return a caution where the share of a class differs strongly between sites; empty where it does not.

    Strongly: Cramer's V between site and class, with Bergsma's correction for chance, is 0.2 or more.

    Parameters
    ----------
    counts : mapping
        For each site the number of subjects of each class.
    classes : sequence of str
        How each class is called; of two the second is spoken of, of more the one that differs most.

    Examples
    --------
    >>> site_confound({"A": [12, 88], "B": [88, 12]}, ["well", "ill"])[:50]
    'The share of ill runs from 12 % (B) to 88 % (A): s'
    >>> site_confound({"A": [50, 50], "B": [48, 52]}, ["well", "ill"])
    ''
    """
    table = np.array([list(row) for row in counts.values()], dtype=float)
    names = [name for name, row in zip(counts, table) if row.sum()]
    table = table[table.sum(1) > 0]
    n, found = table.sum(), []
    for k in range(1 if len(classes) == 2 else 0, len(classes)):
        ones, all_of = table[:, k], table.sum(1)
        share = ones.sum() / max(n, 1.0)
        if len(names) < 2 or not 0 < share < 1:
            continue
        between = float((all_of * (ones / all_of - share) ** 2).sum() / (n * share * (1 - share)))
        found.append((between - (len(names) - 1) / (n - 1), k))
    strongest, k = max(found, default=(0.0, 0))
    if strongest < STRONG_SITE**2:
        return ""
    ones, rest = table[:, k], table.sum(1) - table[:, k]
    shares = ones / (ones + rest)
    order = [i for i in np.argsort(shares, kind="stable") if table[i].sum() >= FEW_AT_SITE] or [0]
    higher = (shares[:, None] > shares) + 0.5 * (shares[:, None] == shares)
    area = float(ones @ higher @ rest / (ones.sum() * rest.sum()))
    low, high = order[0], order[-1]
    two = "so read the AUROC within sites beside the overall one"
    advice = two if len(classes) == 2 else "so part of a score can come from the site alone"
    return (
        f"The share of {classes[k]} runs from {shares[low]:.0%} ({names[low]}) to {shares[high]:.0%} ({names[high]}): "
        f"site alone has an AUROC of {100 * area:.1f}%, {advice}."
    ).replace("%", " %")


def _files(report: Inspection) -> Iterator[Check]:
    if report.changed_scans:
        yield Check(
            "arrays",
            "warning",
            f"the data of {len(report.changed_scans)} subjects are not those that the cohort was written with: "
            f"{_some(report.changed_scans)}; write it again",
        )
    if report.changed_files is None:
        return
    if report.changed_files:
        yield Check(
            "sha256",
            "warning",
            f"{', '.join(report.changed_files)} changed since the cohort was written: write it again",
        )
    else:
        yield Check("sha256", "ok", "every file is as it was written")


# -- tables of plain text --------------------------------------------------------------------------------


def aligned(rows: list[list[str]], left: int = 1) -> list[str]:
    """Return rows of cells as lines: the first ``left`` columns flush left, the rest flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))).rstrip()
        for row in rows
    ]


def layout(report: Inspection) -> list[str]:
    """Return the report as lines of plain text."""
    networks = f" in {report.n_networks} networks" if report.n_networks else ""
    series = "with time series" if report.has_series else "no time series"
    lines = [
        f"{report.path}: {report.source}",
        f"  {_subjects(report)}, {_sites(report)}, {report.n_rois} ROIs{networks} ({report.atlas})",
        f"  connectomes: {report.kind}, diagonal {report.diagonal:g}, {report.dtype}; {series}",
    ]
    if report.volumes is not None:
        low, middle, high = report.volumes
        lines.append(f"  volumes: {low} to {high}, median {middle:g}")
    shown = _by_class(report) if report.score is None else _of_score(report.label or "", report.score)
    lines += ["", *shown, *([f"  {report.task}"] if report.task else []), "", *_by_site(report), "", "Checks"]
    marks = {"ok": "ok", "note": "note", "warning": "LOOK"}
    heads = aligned([[marks[c.state], c.name, ""] for c in report.checks], left=3)
    indent = max(map(len, heads)) + 2
    width = min(max(shutil.get_terminal_size((110, 24)).columns, indent + 40), 130)
    for head, check in zip(heads, report.checks):
        lines += textwrap.wrap(
            check.text, width, initial_indent=head.ljust(indent), subsequent_indent=" " * indent, break_on_hyphens=False
        )
    if report.missing:
        ranked = sorted(report.missing.items(), key=lambda item: item[1])
        lines += ["", "Missing values: " + ", ".join(f"{name} {n}" for name, n in ranked)]
    return lines


def _counted(report: Inspection) -> str:
    return "scans" if report.n_people < report.n_subjects else "n"


def _subjects(report: Inspection) -> str:
    if _counted(report) == "scans":
        return f"{report.n_subjects:,} scans of {report.n_people:,} people (results count people)"
    return f"{report.n_subjects:,} subjects"


def _sites(report: Inspection) -> str:
    if [site.name for site in report.sites] == ["unknown"]:
        return "sites unknown (bnt import --site-column names their column)"
    n = sum(site.name != "unknown" for site in report.sites)
    without = sum(site.n for site in report.sites if site.name == "unknown")
    return f"{n} site{'s' * (n != 1)}" + (f" ({without} without)" if without else "")


def _number(part: Part, column: str, digits: int) -> str:
    spread = part.numbers.get(column)
    return f"{spread.mean:.{digits}f} ± {spread.sd:.{digits}f}" if spread else "-"


_DIGITS = {"age": 1, "mean_fd": 3, "fiq": 0}
BARS = " ▁▂▃▄▅▆▇█"


def _of_score(label: str, score: Score) -> list[str]:
    """Return a continuous label in three lines: its numbers, and a histogram."""
    found, top = score.spread, max(score.counts)
    bars = "".join(BARS[-(-n * (len(BARS) - 1) // top)] for n in score.counts)
    return [
        f"Score {label}",
        f"  n {found.n:,}, mean {found.mean:.4g} ± {found.sd:.4g} SD, median {found.median:.4g}, range "
        f"{score.smallest:.4g} to {score.largest:.4g}, missing {score.missing}",
        f"  {score.smallest:.4g} |{bars}| {score.largest:.4g}   (largest bar: {top})",
    ]


def _by_class(report: Inspection) -> list[str]:
    columns = [c for c in _DIGITS if any(c in part.numbers for part in report.classes)]
    sexes = sorted({s for part in report.classes for s in part.sexes}, reverse=True)
    show_sex = bool(sexes) and len(sexes) <= 4 and report.label != "sex"
    rows = [[report.label or "", _counted(report), "%", *(["/".join(sexes)] if show_sex else []), *columns]]
    known = sum(part.n for part in report.classes) or 1
    for part in report.classes:
        name = report.levels.get(part.name, part.name)
        rows.append(
            [
                name if name == part.name else f"{part.name} {name}",
                f"{part.n:,}",
                f"{100 * part.n / known:.1f}",
                *(["/".join(str(part.sexes.get(s, 0)) for s in sexes)] if show_sex else []),
                *(_number(part, c, _DIGITS[c]) for c in columns),
            ]
        )
    if report.differences:
        sex = next((d for name, d in report.differences.items() if name.startswith("sex=")), None)
        cells = [f"{report.differences[c]:+.2f}" if c in report.differences else "" for c in columns]
        shown = [f"{sex:+.2f}" if sex is not None else ""] if show_sex else []
        rows.append(["difference in SD", "", "", *shown, *cells])
    return ["Classes (mean ± SD)" if report.label else "Subjects (mean ± SD)", *aligned(rows)]


def _by_site(report: Inspection) -> list[str]:
    described = ("age", "mean_fd") if report.score is None else (report.label or "", "age", "mean_fd")
    columns = [c for c in dict.fromkeys(described) if any(c in site.numbers for site in report.sites)]
    classes = [report.levels[v] for v in report.levels]
    two = len(classes) == 2
    head = [
        "site",
        _counted(report),
        *classes,
        *([f"% {classes[1]}"] if two else []),
        "volumes",
        *columns,
        "ROIs missing",
    ]
    rows = [head]
    for site in report.sites:
        counts = [site.classes[v] for v in report.levels]
        low, high = site.volumes or (0, 0)
        rows.append(
            [
                site.name,
                str(site.n),
                *map(str, counts),
                *([f"{100 * counts[1] / max(sum(counts), 1):.0f}"] if two else []),
                "-" if site.volumes is None else str(low) if low == high else f"{low}-{high}",
                *(_number(site, c, _DIGITS.get(c, 1)) for c in columns),
                str(site.rois_without_signal or "-"),
            ]
        )
    return ["Sites", *aligned(rows)]
