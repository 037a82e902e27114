"""The sentences under ``bnt info``: what is in order in a cohort, and what to look at before training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from bnt.cohort._inspect import Inspection

FISHER_KINDS = ("shrunk-z", "fisher-z")
FEW_VOLUMES = 100  # fewer were left out of the paper's cohort
SMALL_SITE = 10  # fewer in a class cannot be spread over training, validation and test
LARGE_DIFFERENCE = 0.2  # standard deviations: small by convention, enough to be learned from


@dataclass
class Check:
    """One thing that was looked at.

    Parameters
    ----------
    name : str
    state : {"ok", "note", "warning"}
        In order; worth knowing; to be settled before training.
    text : str
    """

    name: str
    state: Literal["ok", "note", "warning"]
    text: str


def checks_of(report: Inspection) -> list[Check]:
    """Return everything that was looked at, in order."""
    return [
        *_values(report),
        *_signals(report),
        *_duplicates(report),
        *_design(report),
        *_files(report),
    ]


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
        if finding.get("check") == "same scan" and who not in report.group_of:
            yield Check("duplicate scans", "note", f"{who} was left out: the same scan as {twin}, byte for byte")
    if not pairs:
        yield Check("duplicate scans", "ok", "no two connectomes have the same bytes")
    for people in pairs:
        together = len({report.group_of[who] for who in people}) == 1
        yield Check(
            "duplicate scans",
            "note" if together else "warning",
            f"{' = '.join(people)}, byte for byte; "
            + (
                "one group, so no split separates them"
                if together
                else "not in one group: our splits keep them together, others may not"
            ),
        )


def _design(report: Inspection) -> Iterator[Check]:
    if report.label is None:
        yield Check("label", "note", "no column with two to ten values to count classes by")
        return
    unknown = report.missing.get(report.label, 0)
    if unknown:
        yield Check(report.label, "warning", f"missing for {unknown} subjects")
    if len(report.levels) < 2:
        yield Check(report.label, "warning", "one class only: nothing to learn")
        return
    lonely = [site.name for site in report.sites if sum(n > 0 for n in site.classes.values()) < 2]
    small = [site.name for site in report.sites if 0 < min(site.classes.values()) < SMALL_SITE]
    if lonely:
        yield Check("classes at sites", "warning", f"only one class at {_some(lonely, 6)}: site gives the label away")
    else:
        yield Check("classes at sites", "ok", "every site has every class")
    if small:
        yield Check("site sizes", "note", f"fewer than {SMALL_SITE} of a class at {_some(small, 6)}")
    first, second = [*report.levels.values()][:2]
    for column, d in report.differences.items():
        if abs(d) >= LARGE_DIFFERENCE:
            more = "higher" if d > 0 else "lower"
            yield Check("confounds", "note", f"{column} is {more} in {second} than in {first}, by {abs(d):.2f} SD")


def _files(report: Inspection) -> Iterator[Check]:
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
