"""The configuration of a run (one model, recipe, split and seed), checked and stored as ``config.toml``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tomli_w
import torch

from bnt.cohort import Cohort
from bnt.cohort._store import canonical_kind
from bnt.errors import BadInput
from bnt.models import create_model, find_entry, model_options
from bnt.models.classical._inputs import numbers_of
from bnt.splits import Split, check_split
from bnt.training._adjustments import ENOUGH, check_decisions
from bnt.training._recipe import Adjustments, Recipe, names_of
from bnt.training._task import Task, task_for

CHANGED = "whose scans, sites or labels were different then"
KINDS_OF_0_1 = {"pearson": "paper", "shrunk-z": "released"}


@dataclass(frozen=True)
class RunConfig:
    """All settings that affect the numbers of a run.

    Attributes
    ----------
    model, options, revision, source_sha256
        Name in the catalogue, the given options, and the revision of the model; for a user's own model, its file and
        the file's digest.
    recipe_name, recipe
        The name of the recipe, and all its fields after changes.
    label, task
        The predicted column, and the task (classes or a score).
    seed, threads, device, bf16
        The same seed, number of threads and device give bit-identical results.
    cohort, data_sha256, n_rois, kind, diagonal, rois
        The data: the folder as given, the sha256 of its scans, time series, sites and labels, and the names of the ROIs
        in their order, if they have names.
    data_sha256_of_0_2
        The digest that bnt 0.1 and 0.2 gave the same data, so that their runs are known again. It is not written.
    split, split_sha256
        A name for the split and the digest of its index lists.
    adjustments
        Harmonisation, confounds, class weights and threshold.

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
    data_sha256_of_0_2: str = field(default="", compare=False)
    n_rois: int = 0
    kind: str = "pearson"
    diagonal: float = 1.0
    rois: tuple[str, ...] = ()
    split: str = ""
    split_sha256: str = ""
    adjustments: Adjustments = field(default_factory=Adjustments)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", canonical_kind(self.kind))

    def to_dict(self) -> dict[str, Any]:
        """Return nested plain data, without what is unset."""
        more = {"task": self.task.to_dict(), "adjustments": self.adjustments.to_dict() or None}
        return plain(asdict(self) | more | {"data_sha256_of_0_2": None})

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


def config_of(data: dict[str, Any]) -> RunConfig:
    """Return the configuration that :meth:`RunConfig.to_dict` gave as plain data."""
    data = data | {"recipe": Recipe(**data["recipe"]), "task": Task.from_dict(data["task"])}
    more = {"rois": tuple(data.get("rois", ())), "adjustments": Adjustments(**data.get("adjustments", {}))}
    return RunConfig(**data | more)


def read_config(folder: Path) -> RunConfig:
    """Read the ``config.toml`` of a run."""
    file = folder / "config.toml"
    if not file.is_file():
        raise BadInput(f"{folder} has no config.toml, so it is not a run: give the folder that bnt train made.")
    try:
        return config_of(tomllib.loads(file.read_text(encoding="utf-8")))
    except (ArithmeticError, OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
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
    same_data = found.data_sha256 in (wanted.data_sha256, wanted.data_sha256_of_0_2)
    if not same_data:
        if found.cohort != wanted.cohort:
            return Difference(f"it was made from cohort {found.cohort}, not {wanted.cohort}")
        if found.label == wanted.label and columns_of(found) == columns_of(wanted):
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
        return Difference(f"{wanted.model.rpartition(':')[0] or wanted.model} has changed since")
    if found.model == wanted.model and found.revision != wanted.revision:
        return Difference(f"it was made by revision {found.revision} of {found.model}, this bnt has {wanted.revision}")
    theirs, mine = found.to_dict(), wanted.to_dict()
    for key in ["model", "options", "recipe_name", "recipe", *(theirs | mine)]:
        if key == "cohort" or theirs.get(key) == mine.get(key) or (key == "data_sha256" and same_data):
            continue
        parameter = {"recipe_name": "recipe", "recipe": "change"}.get(key, key)
        old, new = theirs.get(key), mine.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            names = [name for name in old | new if old.get(name) != new.get(name)]
            said = ", ".join(f"{name} = {old.get(name)!r}, not {new.get(name)!r}" for name in names)
            return Difference(f"its {key} has {said}", parameter)
        return Difference(f"its {key.replace('_name', '')} is {old!r}, not {new!r}", parameter)
    return None


# -- what a run would be: its inputs checked, before anything is trained -------------------------------

LONG_SCAN = 512  # volumes: what the paper reads of ABCD, as 100 of ABIDE


def describe(
    cohort: Cohort,
    label: str,
    split: Split,
    *,
    model: str,
    options: dict[str, Any] | None = None,
    recipe: Recipe,
    recipe_name: str = "default",
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    bf16: bool = False,
    task: str = "auto",
    positive: str | None = None,
    adjustments: Adjustments | None = None,
) -> RunConfig:
    """Check the settings of a run and return its configuration, without writing anything.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from bnt.splits import named_splits
    >>> from bnt.training import describe, find_recipe
    >>> (split,) = named_splits(cohort, "diagnosis", "site-stratified", n_splits=1)
    >>> config = describe(cohort, "diagnosis", split, model="logistic", recipe=find_recipe("default"))
    >>> config.n_rois
    20
    """
    entry = find_entry(model)
    if entry.needs_series and cohort.timeseries is None:
        raise BadInput(f"Model {model!r} reads time series and {cohort.path or 'the cohort'} has none.")
    for atlas in cohort.atlases if entry.every_atlas else (cohort.atlas,):
        check_data(cohort.with_atlas(atlas))
    rows = split.rows(cohort)
    check_split(cohort, *rows)
    y = cohort.labels(label)
    check_device(device)
    if seed < 0 or threads < 1:
        raise BadInput(f"The seed is {seed} and there are {threads} threads: give at least 0 and at least 1.")
    adjustments, options = assign_confounds(model, adjustments or Adjustments(), options or {})
    config = RunConfig(
        model=entry.name,
        label=label,
        seed=seed,
        recipe=recipe,
        task=task_for(y, task, rows[0], positive),
        recipe_name=recipe_name,
        options=options_for(cohort, model, options),
        revision=entry.revision,
        source_sha256=entry.source_sha256,
        threads=threads,
        device=device,
        bf16=bf16,
        cohort=str(cohort.path.resolve()) if cohort.path else "",
        n_rois=cohort.n_rois,
        kind=cohort.kind,
        diagonal=cohort.diagonal,
        rois=roi_names(cohort),
        split=split.name,
        split_sha256=split.digest(),
        adjustments=adjustments,
    )
    check_adjustments(config, cohort, n_val=len(rows[1]))
    names = (label, *columns_of(config))
    now = data_digest(cohort, *names, every_atlas=entry.every_atlas)
    config = replace(config, data_sha256=now, data_sha256_of_0_2=data_digest_of_0_2(cohort, *names))
    check_options(config)
    return config


def columns_of(config: RunConfig) -> tuple[str, ...]:
    """Return the columns of ``participants.tsv`` that a run reads beside its label."""
    return tuple(dict.fromkeys([*names_of(config.options.get("confounds") or ""), *config.adjustments.columns]))


def assign_confounds(
    model: str, adjustments: Adjustments, options: dict[str, Any]
) -> tuple[Adjustments, dict[str, Any]]:
    """Return adjustments and options, with confounds where the model wants them.

    A model with an option ``confounds`` regresses them out of its own features (the tangent space, say); for any other
    they are regressed out of the edges that it reads.
    """
    if not adjustments.confounds or "confounds" not in model_options(model):
        return adjustments, options
    if options.get("confounds") not in (None, "", adjustments.confounds):
        raise BadInput(
            f"The confounds are {adjustments.confounds!r}, and {options['confounds']!r} among the options of {model}: "
            "give them once.",
            "confounds",
        )
    return replace(adjustments, confounds=""), options | {"confounds": adjustments.confounds}


def check_adjustments(config: RunConfig, cohort: Cohort, n_val: int | None = None) -> None:
    """Refuse adjustments that cannot be made: columns that are not there, the label, series, scores as classes."""
    chosen, task = config.adjustments, config.task
    for name in columns_of(config):
        if name not in cohort.participants:
            there = ", ".join(cohort.participants.columns)
            what = f"The confound {name!r}" if name not in names_of(chosen.keep) else f"{name!r}, to be kept,"
            raise BadInput(f"{what} is not a column of participants.tsv of {cohort.path}; it has {there}.")
        if name == config.label:
            raise BadInput(f"{name!r} is the label, which is not known for new subjects: leave it out.", "confounds")
        numbers_of(cohort.participants[name], name)
    series = find_entry(config.model).needs_series
    if chosen.harmonise and series:
        raise BadInput(
            f"ComBat harmonises the edges of connectomes and model {config.model!r} reads time series, whose volumes "
            "have no counterpart in another scan: choose a model of connectomes, or give site among the confounds.",
            "harmonise",
        )
    if chosen.confounds and series:
        check_decisions(ENOUGH if n_val is None else n_val, config.recipe.refit)
    if chosen.class_weight and task.kind == "regression":
        raise BadInput(
            f"{config.label!r} is a score and has no classes to weight: leave class_weight out.", "class_weight"
        )
    if chosen.threshold and (task.n_outputs != 2 or config.recipe.refit or n_val == 0):
        why = "the label does not have two classes" if task.n_outputs != 2 else "the validation set is empty"
        why = "the recipe refits on the validation set" if config.recipe.refit else why
        raise BadInput(f"No threshold can be chosen on validation, because {why}: leave it at 0.5.", "threshold")


def check_device(name: str) -> None:
    """Refuse a device that is not here."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise BadInput(f"Unknown device {name!r}: choose cpu or cuda (cuda:1 for the second).") from error
    if device.type not in ("cpu", "cuda"):
        raise BadInput(f"Unknown device {name!r}: choose cpu or cuda (cuda:1 for the second).")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise BadInput(f"The device is {name!r} and torch finds {torch.cuda.device_count()} GPUs here: choose cpu.")


def check_options(config: RunConfig) -> None:
    """Refuse options that the model cannot be made with and inputs that it cannot read; costs no memory."""
    entry = find_entry(config.model)
    with torch.device("meta") if entry.trains_in_epochs and entry.source_sha256 is None else nullcontext():
        model = create_model(config.model, config.n_rois, config.task.n_outputs, **config.options)
    check_inputs = getattr(model, "check_inputs", None)
    if check_inputs is not None:
        check_inputs(config.kind, config.recipe.inputs)


def options_for(cohort: Cohort, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options, without those left unset, and what the cohort decides.

    A series model reads 512 volumes where every scan has as many; otherwise what the model says, cut to the shortest
    scan. A model of networks is given the network of each ROI.
    """
    options = {name: value for name, value in options.items() if value is not None}
    for taken in ("name", "n_rois", "n_classes"):
        if taken in options:
            raise BadInput(f"{taken} is not an option of {name}: it follows from the cohort and its label.", "option")
    if find_entry(name).needs_series and "n_volumes" not in options and cohort.timeseries is not None:
        default, shortest = model_options(name).get("n_volumes"), int(cohort.timeseries.lengths.min())
        if default is not None:
            options["n_volumes"] = LONG_SCAN if shortest >= LONG_SCAN else min(int(default), shortest)
    if "networks" in model_options(name):
        options["networks"] = roi_networks(cohort, name, options.get("networks", "network"))
    return options


def roi_networks(cohort: Cohort, model: str, asked: str | Sequence[str]) -> list[str]:
    """Return the network of each ROI: as given, of a column of the ROI table, or of a file with one name per line."""
    if not isinstance(asked, str):
        return [str(name) for name in asked]
    found = None
    if asked in cohort.rois:
        found = cohort.rois[asked].fillna("").astype(str).tolist()
    elif Path(asked).expanduser().is_file():
        found = Path(asked).expanduser().read_text(encoding="utf-8").splitlines()
    if found is None or not any(found):
        what = f"{asked!r} is neither a file nor a column" if found is None else f"{asked!r} is empty"
        raise BadInput(
            f"Model {model!r} needs the functional network of each ROI, and {what} of rois.tsv of "
            f"{cohort.path or 'the cohort'}: fill the column network, or set the option networks to a column "
            f"({', '.join(cohort.rois.columns)}) or to a file with one name per line."
        )
    return found


def data_digest(cohort: Cohort, *names: str, every_atlas: bool = False) -> str:
    """Return a digest of what is learned from: scans, series, sites and the columns named, wherever they lie."""
    found, series = _digest_of_tables(cohort, names), cohort.series_digests
    if series is not None:
        found.update("".join(series).encode())
    for atlas in cohort.atlases if every_atlas else ():
        if atlas != cohort.atlas:
            found.update(data_digest(cohort.with_atlas(atlas)).encode())
    return found.hexdigest()


def data_digest_of_0_2(cohort: Cohort, *names: str) -> str:
    """Return the digest of bnt 0.1 and 0.2, where it differs: of series it had the first and last volumes only."""
    if cohort.timeseries is None:
        return ""
    found = _digest_of_tables(cohort, names)
    found.update(cohort.timeseries.digest_of_0_2.encode())
    return found.hexdigest()


def _digest_of_tables(cohort: Cohort, names: Sequence[str]) -> Any:
    columns = [cohort.digests, cohort.sites, *(cohort.participants[name].to_numpy() for name in names)]
    return sha256(json.dumps([np.asarray(c).astype(str).tolist() for c in columns]).encode())


def check_data(cohort: Cohort, *, read: bool = False) -> None:
    """Refuse a cohort whose arrays are not those that it was written with; ``read`` reads all of them."""
    changed = cohort.changed(read=read)
    if changed.size:
        more = f" and {changed.size - 1} more" if changed.size > 1 else ""
        raise BadInput(
            f"The arrays of {cohort.path} are not those that it was written with ({changed[0]}{more}): restore them "
            f"or, if the new ones are meant, make a cohort of them with bnt select {cohort.path} NEW."
        )


def roi_names(cohort: Cohort) -> tuple[str, ...]:
    """Return the names of the ROIs in their order; none where a ROI has no name."""
    names = tuple(cohort.rois["label"].astype(str))
    return names if all(names) else ()
