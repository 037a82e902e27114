"""What each part of the paper leaves behind: a CSV, a Markdown table and a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bnt.cohort._files import write_atomic
from bnt.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MARKER = "reproduce.json"


def check_output(folder: Path, what: str) -> None:
    """Refuse a folder that holds another table or figure; nothing is written."""
    marker = folder / MARKER
    if marker.is_file():
        try:
            held = json.loads(marker.read_text()).get("what")
        except ValueError as error:
            raise BadInput(f"{marker} is damaged ({error}): choose another --out.") from error
        if held != what:
            raise BadInput(f"{folder} holds {held!r}, not {what!r}: choose another --out, one a table or figure.")


def open_output(folder: str | Path, what: str) -> Path:
    """Make the folder of one table or figure and mark it as such, or refuse one that holds another."""
    folder = Path(folder)
    check_output(folder, what)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARKER).is_file():
            write_facts(folder, {"what": what})
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror}.") from error
    return folder


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Write what was asked for and with which versions."""
    write_atomic(folder / MARKER, json.dumps(facts, indent=2) + "\n")


def write_outputs(folder: Path, name: str, table: pd.DataFrame, markdown: str, figure: Figure) -> list[Path]:
    """Write ``name.csv``, ``name.md``, ``name.png`` and ``name.pdf``."""
    from bnt.plotting._style import save_figure

    files = [folder / f"{name}.{ending}" for ending in ("csv", "md", "png", "pdf")]
    write_atomic(files[0], table.to_csv(index=False))
    write_atomic(files[1], markdown)
    for file in files[2:]:
        save_figure(figure, file)
    return files
