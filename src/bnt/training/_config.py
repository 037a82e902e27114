"""What a run is: one model, one recipe, one split, one seed. Plain data, kept as ``config.toml``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from bnt.cohort._cohort import canonical_kind
from bnt.errors import BadInput
from bnt.training._recipe import Recipe
from bnt.training._task import Task

KINDS_OF_0_1 = {"pearson": "paper", "shrunk-z": "released"}


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

    Examples
    --------
    >>> from bnt.training import TrainedRun
    >>> trained = TrainedRun("run")  # a folder made by bnt train
    >>> trained.config.model, trained.config.label
    ('bnt', 'diagnosis')
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
    kind: str = "pearson"
    diagonal: float = 1.0
    rois: tuple[str, ...] = ()
    split: str = ""
    split_sha256: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", canonical_kind(self.kind))

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain data, without what is unset."""
        return plain(asdict(self) | {"task": self.task.to_dict()})

    def digest(self) -> str:
        """Return a digest of everything that decides the numbers (not where the cohort lies)."""
        data = {k: v for k, v in self.to_dict().items() if k != "cohort"}
        data["kind"] = KINDS_OF_0_1.get(self.kind, self.kind)  # so that runs of bnt 0.1.0 have the same digest
        return sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()


def write_toml(data: dict[str, Any]) -> str:
    """Return nested data as TOML; what is unset (None) is left out."""
    return tomli_w.dumps(plain(data))


def plain(value: Any) -> Any:
    """Return nested data of TOML's own types: numpy's become Python's, anything else its text."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if v is not None}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def read_config(folder: Path) -> RunConfig:
    """Read the ``config.toml`` of a run."""
    file = folder / "config.toml"
    if not file.is_file():
        raise BadInput(f"{folder} has no config.toml, so it is not a run: give the folder that bnt train made.")
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        data["recipe"] = Recipe(**data["recipe"])
        data["rois"] = tuple(data.get("rois", ()))
        data["task"] = Task.from_dict(data["task"])
        return RunConfig(**data)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{file} is not a run's configuration of this version ({error}): train again.") from error
