"""What a run is: one model, one recipe, one split, one seed. Plain data, kept as ``config.toml``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from bnt.errors import BadInput
from bnt.training.recipe import Recipe
from bnt.training.task import Task


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers.

    Attributes
    ----------
    model, options, revision, source_sha256
        Name in the catalogue, the options given, and which edition of the model it was; of a model of one's own,
        its file and the file's digest.
    recipe_name, recipe
        The recipe it started from and all its fields.
    label, task
        Which column is predicted, and as what.
    seed, threads, device, bf16
        Same seed, same thread count, same device: same bits.
    cohort, data_sha256, n_rois, kind, diagonal, rois
        Which data: the folder as it was given, and the sha256 of its scans, series, sites and labels;
        the names of the ROIs in their order, where they have any.
    split, split_sha256
        A name for the split and the digest of its index lists.
    """

    model: str
    label: str
    seed: int
    recipe: Recipe
    task: Task
    recipe_name: str = "default"
    options: dict[str, Any] = field(default_factory=dict)
    revision: int = 1
    source_sha256: str | None = None
    threads: int = 1
    device: str = "cpu"
    bf16: bool = False
    cohort: str = ""
    data_sha256: str = ""
    n_rois: int = 0
    kind: str = "paper"
    diagonal: float = 1.0
    rois: tuple[str, ...] = ()
    split: str = ""
    split_sha256: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain data, without what is unset."""
        data = asdict(self) | {"task": self.task.to_dict()}
        return {k: v for k, v in data.items() if v is not None}

    def digest(self) -> str:
        """Return a digest of everything that decides the numbers (not where the cohort lies)."""
        data = {k: v for k, v in self.to_dict().items() if k != "cohort"}
        return sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def write_toml(data: dict[str, Any]) -> str:
    """Return plain nested data as TOML: scalars and lists first, then one table a dictionary."""

    def value(v: Any) -> str:
        if isinstance(v, bool):
            return str(v).lower()
        if isinstance(v, int | float):
            return repr(v)
        if isinstance(v, list | tuple):
            return "[" + ", ".join(value(x) for x in v) + "]"
        if isinstance(v, dict):
            return "{" + ", ".join(f"{k} = {value(x)}" for k, x in v.items()) + "}"
        return json.dumps(str(v))  # a JSON string is a TOML basic string

    lines = [f"{k} = {value(v)}" for k, v in data.items() if not isinstance(v, dict) and v is not None]
    for name, table in data.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{k} = {value(v)}" for k, v in table.items() if v is not None)]
    return "\n".join(lines) + "\n"


def read_config(folder: Path) -> RunConfig:
    """Read the ``config.toml`` of a run."""
    file = folder / "config.toml"
    if not file.is_file():
        raise BadInput(f"{folder} has no config.toml, so it is not a run: give the folder that bnt train made.")
    try:
        data = tomllib.loads(file.read_text())
        data["recipe"] = Recipe(**data["recipe"])
        data["rois"] = tuple(data.get("rois", ()))
        data["task"] = Task.from_dict(data["task"])
        return RunConfig(**data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{file} is not a run's configuration of this version ({error}): train again.") from error
