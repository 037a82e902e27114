"""Weights and checkpoints as safetensors files, replaced atomically. No pickle is written or read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from bnt.cohort.atomic import sync_file, sync_folder, write_atomic
from bnt.errors import BadInput


def save_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any] | None = None) -> None:
    """Write tensors, and plain data in the file's header, to ``path``: temporary name, fsync, rename.

    Whatever goes wrong, the file that was there before is intact.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    temporary = path.with_name(path.name + ".tmp")
    plain = {k: v.detach().contiguous().cpu() for k, v in tensors.items()}
    try:
        save_file(plain, temporary, metadata={"facts": json.dumps(facts or {})})
        sync_file(temporary)
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        raise BadInput(
            f"{path} cannot be written ({error}): free some space or choose another folder; what was there is intact."
        ) from error


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`save_tensors` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
    except (OSError, SafetensorError, ValueError) as error:
        raise BadInput(f"{path} is not a safetensors file of ours ({error}): train again.") from error
    return tensors, facts


class Checkpoint:
    """The checkpoint of one run: one file that holds everything, and a readable note beside it.

    Parameters
    ----------
    folder : path
        The run's folder.
    stage : str
        What is being trained (which member, selection or refit); a checkpoint of another stage is not used.
    """

    def __init__(self, folder: Path, stage: str) -> None:
        self.path = folder / "checkpoint.safetensors"
        self.note = folder / "checkpoint.json"
        self.stage = stage

    def save(self, state: Any) -> None:
        """Write the state (anything with ``tensors()`` and ``facts()``)."""
        facts = {"stage": self.stage, **state.facts()}
        save_tensors(self.path, state.tensors(), facts)
        note = {k: facts[k] for k in ("stage", "epoch", "step", "chosen_epoch")}
        write_atomic(self.note, json.dumps(note, indent=2) + "\n")

    def restore(self, state: Any) -> bool:
        """Put the saved state back, if there is one of this stage."""
        if not self.path.is_file():
            return False
        tensors, facts = load_tensors(self.path)
        if facts.pop("stage", None) != self.stage:
            return False
        state.restore(tensors, facts)
        return True

    def remove(self) -> None:
        """Delete the checkpoint when it is no longer needed."""
        for file in (self.path, self.note):
            file.unlink(missing_ok=True)
