"""What someone who chose splits should be told: nothing is wrong, but it may not be what was meant."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bnt.cohort import Cohort
from bnt.splits.protocols import ALIASES, PROTOCOLS
from bnt.splits.shuffle import Split
from bnt.splits.table import left_out


def split_notices(
    cohort: Cohort, name: str, splits: Sequence[tuple[str, Split]], *, n_splits: int, names: Sequence[str] = ()
) -> list[str]:
    """Return sentences about splits that are fewer than asked for, and about subjects whom no split has.

    Parameters
    ----------
    cohort : Cohort
    name : str
        A protocol or a table, as for :func:`~bnt.splits.named_splits`, which made ``splits``.
    splits : sequence of (name, (train, val, test))
    n_splits : int
        How many were asked for.
    names : sequence of str
        Columns that were asked for in their place.
    """
    key = ALIASES.get(name, name)
    if key == "leave-one-site-out" and n_splits != len(splits):
        return [f"leave-one-site-out has one split a site: {len(splits)} splits, whatever --splits says."]
    if key in PROTOCOLS:
        return []
    said = []
    if not names and len(splits) < n_splits:
        count = f"{len(splits)} split{'s' * (len(splits) != 1)}"
        said.append(f"{Path(name).name} has {count}, fewer than the {n_splits} of --splits: all are used.")
    missing = left_out(cohort, [split for _, split in splits])
    if missing:
        said.append(f"{missing} of {len(cohort)} subjects are in no split of {Path(name).name}.")
    return said
