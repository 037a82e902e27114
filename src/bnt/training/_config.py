"""What a run is: one model, one recipe, one split, one seed. Plain data, kept as ``config.toml``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w

from bnt.cohort._store import canonical_kind
from bnt.errors import BadInput
from bnt.training._recipe import Recipe
from bnt.training._task import Task

CHANGED = "whose scans, sites or labels were different then"
KINDS_OF_0_1 = {"pearson": "paper", "shrunk-z": "released"}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers.

    Attributes
    ----------
    model, options, revision, source_sha256
        Name in the catalogue, the options given, and which revision of the model it was; of a model of one's own,
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


class Difference(NamedTuple):
    """In what two configurations differ: in words, and the parameter that makes them the same, where one does."""

    words: str
    parameter: str = ""


def difference(found: RunConfig, wanted: RunConfig) -> Difference | None:
    """Return in what a run on disk differs from the one asked for; None where it is the same run.

    Field by field, so that a run of an earlier version is the same where the fields that it did not have yet are at
    their defaults. What decides most is named first: cohort, label, task, subjects, model, recipe, machine. Where the
    cohort lies does not count.
    """
    if found.data_sha256 != wanted.data_sha256:
        if found.cohort != wanted.cohort:
            return Difference(f"it was made from cohort {found.cohort}, not {wanted.cohort}")
        if found.label == wanted.label and found.options.get("confounds") == wanted.options.get("confounds"):
            return Difference(f"it was made from cohort {found.cohort}, {CHANGED}")
    if found.label != wanted.label:
        return Difference(f"its label is {found.label!r}, not {wanted.label!r}", "label")
    if found.task.kind != wanted.task.kind:
        return Difference(f"its task is {found.task.kind}, not {wanted.task.kind}", "task")
    if found.task.classes != wanted.task.classes and set(found.task.classes) == set(wanted.task.classes):
        return Difference(f"its positive class is {found.task.classes[-1]}, not {wanted.task.classes[-1]}", "positive")
    if found.split_sha256 != wanted.split_sha256:
        return Difference(f"its split {found.split} has other subjects")
    if found.model == wanted.model and found.source_sha256 != wanted.source_sha256:
        return Difference(f"{wanted.model.rpartition(':')[0]} has changed since")
    if found.model == wanted.model and found.revision != wanted.revision:
        return Difference(f"it was made by revision {found.revision} of {found.model}, this bnt has {wanted.revision}")
    theirs, mine = found.to_dict(), wanted.to_dict()
    for key in ["model", "options", "recipe_name", "recipe", *(theirs | mine)]:
        if key == "cohort" or theirs.get(key) == mine.get(key):
            continue
        parameter = {"recipe_name": "recipe", "recipe": "change"}.get(key, key)
        old, new = theirs.get(key), mine.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            names = [name for name in old | new if old.get(name) != new.get(name)]
            said = ", ".join(f"{name} = {old.get(name)!r}, not {new.get(name)!r}" for name in names)
            return Difference(f"its {key} has {said}", parameter)
        return Difference(f"its {key.replace('_name', '')} is {old!r}, not {new!r}", parameter)
    return None
