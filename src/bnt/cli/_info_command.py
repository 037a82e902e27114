"""What a careful researcher wants to know about a cohort before training.

Counts per site and class, age, sex and motion by class, scan lengths, constant ROIs, NaNs, duplicate scans
(same bytes), matrices that were not symmetric, values beyond [-1, 1], Fisher z given as Pearson.
"""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

if TYPE_CHECKING:
    from bnt.cohort._inspect import Inspection, Part


@dataclass
class Options:
    """Which cohort, and what to look at."""

    cohort: tyro.conf.Positional[Path]
    """A cohort's folder."""
    label: str | None = None
    """Column to count classes by (diagnosis, where there is one)."""
    verify: bool = False
    """Also compare every file with its recorded sha256."""
    json: bool = False
    """Print the whole report as JSON."""


def run(options: Options) -> int:
    """Inspect a cohort and print the report."""
    from bnt.cohort import load_cohort
    from bnt.cohort._inspect import inspect_cohort

    report = inspect_cohort(load_cohort(options.cohort), options.label, verify=options.verify)
    if options.json:
        import json
        from dataclasses import asdict

        everything = asdict(report)
        del everything["group_of"]  # a row a subject: participants.tsv has it
        print(json.dumps(everything, indent=2, ensure_ascii=False))
    else:
        print("\n".join(layout(report)))
    return 0


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
        f"  {report.n_subjects:,} subjects, {len(report.sites)} site{'s' * (len(report.sites) != 1)}, "
        f"{report.n_rois} ROIs{networks} ({report.atlas})",
        f"  connectomes: {report.kind}, diagonal {report.diagonal:g}, {report.dtype}; {series}",
    ]
    if report.volumes is not None:
        low, middle, high = report.volumes
        lines.append(f"  volumes: {low} to {high}, median {middle:g}")
    lines += ["", *_by_class(report), "", *_by_site(report), "", "Checks"]
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


def _number(part: Part, column: str, digits: int) -> str:
    spread = part.numbers.get(column)
    return f"{spread.mean:.{digits}f} ± {spread.sd:.{digits}f}" if spread else "-"


_DIGITS = {"age": 1, "mean_fd": 3, "fiq": 0}


def _by_class(report: Inspection) -> list[str]:
    columns = [c for c in _DIGITS if any(c in part.numbers for part in report.classes)]
    sexes = sorted({s for part in report.classes for s in part.sexes}, reverse=True)
    show_sex = bool(sexes) and len(sexes) <= 4 and report.label != "sex"
    rows = [[report.label or "", "n", "%", *(["/".join(sexes)] if show_sex else []), *columns]]
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
    columns = [c for c in ("age", "mean_fd") if any(c in site.numbers for site in report.sites)]
    classes = [report.levels[v] for v in report.levels]
    two = len(classes) == 2
    head = ["site", "n", *classes, *([f"% {classes[1]}"] if two else []), "volumes", *columns, "ROIs missing"]
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
                *(_number(site, c, _DIGITS[c]) for c in columns),
                str(site.rois_without_signal or "-"),
            ]
        )
    return ["Sites", *aligned(rows)]
