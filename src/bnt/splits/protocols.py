"""Protocols by name, for the command line and for settings read from a file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits.folds import LeaveOneSiteOut, RepeatedKFold
from bnt.splits.released import ReleasedSplit
from bnt.splits.shuffle import RandomSplit, SiteStratifiedSplit, Split
from bnt.splits.table import SavedSplits

PROTOCOLS: dict[str, type] = {
    "site-stratified": SiteStratifiedSplit,
    "random": RandomSplit,
    "kfold": RepeatedKFold,
    "leave-one-site-out": LeaveOneSiteOut,
    "released": ReleasedSplit,
}
ALIASES = {"paper": "site-stratified", "loso": "leave-one-site-out"}


class Splitter(Protocol):
    """What every protocol can do."""

    def split(self, cohort: Cohort, label: str | np.ndarray | None) -> Iterator[Split]:
        """Yield ``(train, val, test)`` positions of the cohort."""
        ...


def protocol(name: str, **settings: Any) -> Splitter:
    """Return the protocol with this name, or the splits of a file.

    Parameters
    ----------
    name : str
        ``site-stratified`` (or ``paper``), ``random``, ``kfold``, ``leave-one-site-out``, ``released``, or the path
        of a table of splits (.csv or .tsv).
    **settings
        Fields of the protocol's dataclass.

    Examples
    --------
    >>> protocol("kfold", n_folds=10)
    RepeatedKFold(n_folds=10, n_repeats=1, seed=0, validation=0.125, train_fraction=1.0)
    """
    key = ALIASES.get(name, name)
    made: type
    if key in PROTOCOLS:
        made = PROTOCOLS[key]
    elif Path(name).suffix in (".csv", ".tsv"):
        if not Path(name).is_file():
            raise BadInput(f"There is no file {name}: give a table of splits that exists.")
        made = SavedSplits
        settings = {"path": name, **settings}
    else:
        known = ", ".join([*PROTOCOLS, *ALIASES])
        raise BadInput(f"There is no protocol {name!r}: choose one of {known}, or a .csv or .tsv table of splits.")
    allowed = [f.name for f in fields(made)]
    unknown = [setting for setting in settings if setting not in allowed]
    if unknown:
        raise BadInput(f"Protocol {name!r} has no setting {unknown[0]!r}; it has {', '.join(allowed)}.")
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return made(**plain)
