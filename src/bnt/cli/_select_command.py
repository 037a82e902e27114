"""Make a cohort of some subjects of another: those who have a label, those of a site, those of a list.

Conditions are joined: a subject must meet all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Options:
    """Options of ``bnt select``."""

    cohort: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="COHORT")]
    """The cohort's folder."""
    out: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The new cohort's folder."""
    having: tuple[str, ...] = ()
    """Columns of participants.tsv in which a subject must have a value, for example diagnosis age."""
    where: Annotated[tuple[str, ...], tyro.conf.arg(metavar="COLUMN=VALUE ...")] = ()
    """Values that a subject must have, for example sex=F site=NYU,UM_1 (one of several)."""
    ids: Path | None = None
    """A text file with one participant_id a line."""
    overwrite: bool = False
    """Replace a cohort that is there already."""


def run(options: Options) -> None:
    """Write the new cohort and say who is in it."""
    from bnt.cohort import load_cohort
    from bnt.cohort._files import refuse_existing
    from bnt.cohort._inspect import as_code
    from bnt.errors import BadInput

    refuse_existing(options.out, options.overwrite, "cohort.json")
    whole = load_cohort(options.cohort)
    chosen = whole.having(*options.having) if options.having else whole
    for condition in options.where:
        name, found, values = condition.partition("=")
        if not found or name not in whole.participants:
            columns = ", ".join(whole.participants.columns)
            raise BadInput(f"--where {condition!r} is not COLUMN=VALUE; the columns are {columns}.")
        codes = chosen.participants[name].map(as_code)  # 1, where a gap elsewhere made it 1.0
        chosen = chosen.select(codes.isin(values.split(",")).to_numpy())
    if options.ids is not None:
        try:
            lines = options.ids.read_text().split()
        except (OSError, ValueError) as error:
            raise BadInput(f"{options.ids} cannot be read ({error}): give a text file of participant ids.") from error
        unknown = sorted(set(lines) - set(whole.ids.tolist()))
        if unknown:
            raise BadInput(f"{options.ids} names {unknown[0]!r}, who is not in {options.cohort}: remove the line.")
        chosen = chosen.select([name for name in chosen.ids.tolist() if name in set(lines)])
    if not len(chosen):
        raise BadInput(f"None of the {len(whole)} subjects of {options.cohort} meets these conditions.")
    chosen.save(options.out, overwrite=options.overwrite)
    print(f"{options.out}: {len(chosen)} of {len(whole)} subjects, {len(whole) - len(chosen)} left out")
