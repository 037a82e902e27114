"""Reproductions by name, their plan (cohort, splits, budget and variants), and the numbers that the paper prints.

They are kept as printed, misprints included; what is known to be wrong with them is said where they are shown.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from bnt.cohort import Cohort
from bnt.cohort._files import held
from bnt.errors import BadInput
from bnt.models.classical._subject_matrices import DISK_GB
from bnt.splits import Split, named_splits
from bnt.splits._protocols import canonical, split_notices
from bnt.studies._job import Variant, fit_variants, say_fitted
from bnt.studies._slurm import Slurm
from bnt.training._config import check_device, data_digest
from bnt.training._recipe import Recipe, find_recipe
from bnt.training._run import versions
from bnt.training._task import task_for

Value = tuple[float, float]  # mean, SD
NAN = float("nan")
NOTHING: Value = (NAN, NAN)
DATASETS = ("ABIDE", "ABCD")
METRICS = ("auroc", "accuracy", "sensitivity", "specificity")
N_RUNS = 5


def _printed(table: str) -> dict[str, dict[str, tuple[Value, ...]]]:
    """Return a table of ``printed.csv``: data set -> row -> mean and SD of each column."""
    found: dict[str, dict[str, tuple[Value, ...]]] = {name: {} for name in DATASETS}
    for one, dataset, row, *cells in csv.reader(files("bnt.paper").joinpath("printed.csv").read_text().splitlines()):
        if one == table:
            pairs = [cell.split() or (NAN, NAN) for cell in cells]
            found[dataset][row] = tuple((float(mean), float(sd)) for mean, sd in pairs)
    return found


def _of_one_column(table: str) -> dict[str, dict[str, Value]]:
    return {dataset: {row: value for row, (value,) in rows.items()} for dataset, rows in _printed(table).items()}


BACKBONES = ("SAN", "Graphormer", "VanillaTF")
TABLE1 = _printed("table1")  # AUROC, accuracy, sensitivity, specificity; BrainGNN ran out of memory on ABCD
TABLE2 = _printed("table2")  # AUROC of each readout with each of the backbones
FEATURES = _of_one_column("features")  # appendix B: AUROC of VanillaTF with different node features
RUNTIME = _of_one_column("runtime")  # appendix D: minutes of training on an NVIDIA Quadro RTX 8000
DIFFERENCE = _of_one_column("difference")  # appendix H: difference score of the assignments

# Appendix E: parameters, as printed ("57.7M6" included) on ABIDE (200 ROIs) and ABCD (360 ROIs).
PARAMETERS: dict[str, tuple[str, str]] = {
    "BrainNetCNN": ("0.93M", "0.93M"),
    "BrainGB": ("1.08M", "1.49M"),
    "FBNetGen": ("0.55M", "1.18M"),
    "SAN": ("57.7M6", "186.7M"),
    "Graphormer": ("1.23M", "1.66M"),
    "VanillaTF": ("15.6M", "32.7M"),
    "BrainNetTF": ("4.0M", "11.2M"),
}

# Section 4.3.2: numbers of clusters of Figure 3a; Figure 4 has K = 4. Its values are printed as a picture only.
CLUSTERS = (2, 3, 4, 5, 10, 50, 100)
FIGURE4_CLUSTERS = 4


def show(value: Value, digits: int = 1) -> str:
    """Return ``71.3 ± 2.1``, or a dash where nothing is printed."""
    mean, sd = value
    if mean != mean:
        return "–"
    return f"{mean:.{digits}f}" + ("" if sd != sd else f" ± {sd:.{digits}f}")


@dataclass(frozen=True)
class Preset:
    """A budget: how many splits, which recipe, and what it sets for every network alike, whatever its own row says."""

    splits: int
    recipe: str
    settings: Mapping[str, Any]


# Fixed before the tables were made, the same for every network: up to 40 epochs, less where validation stands still.
STOPPING = {"epochs": 40, "patience": 10, "select": "smoothed"}
PRESETS = {
    "quick": Preset(2, "default", {"epochs": 8}),
    "standard": Preset(5, "default", STOPPING),
    "full": Preset(20, "paper", {"epochs": 200}),
}
SIZES = (50, 100, 200, 400)
FRACTIONS = tuple(i / 10 for i in range(1, 11))


@dataclass(frozen=True)
class Plan:
    """The settings of a reproduction.

    Attributes
    ----------
    cohort : Cohort
        On disk.
    out : path
        Folder of this table or figure.
    label, protocol, preset : str
        The label to predict, the split protocol, and the training budget.
    splits, epochs : int, optional
        Override the preset.
    changes : mapping
        Fields of the recipe to set.
    model : str
        The model of the figures about OCRead: ``bnt``, or ``bnt-released``.
    only : tuple of str
        Names of variants to keep; all when empty.
    model_options : mapping
        Additional options for each model.
    clusters, fractions, sizes : tuple
        K of Figure 3a; shares of the training set for the learning curve; V of the measured complexity.
    jobs, threads, device, cache_gb, memory_gb, engine, address, slurm, split_seed, seeds
        As in ``bnt compare``.
    together : bool
        Whether this is a part of ``all``; parts with the same runs then share them.
    what : str
        Which table or figure this is; marks its folder before the first run.
    command : str
        The command as typed, stored with the results.
    watch : callable, optional
        Makes a context manager that shows a study's progress.
    say : callable
        Called with one line before a long computation.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from pathlib import Path
    >>> from bnt.paper import Plan
    >>> Plan(cohort, Path("table1"), preset="quick").n_splits
    2
    """

    cohort: Cohort
    out: Path
    label: str = "diagnosis"
    protocol: str = "site-stratified"
    preset: str = "standard"
    splits: int | None = None
    epochs: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    model: str = "bnt"
    only: tuple[str, ...] = ()
    model_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    clusters: tuple[int, ...] = CLUSTERS
    fractions: tuple[float, ...] = FRACTIONS
    sizes: tuple[int, ...] = SIZES
    jobs: int = 1
    threads: int = 1
    device: str = "cpu"
    cache_gb: float = DISK_GB
    memory_gb: float | None = None
    engine: str = "local"
    address: str | None = None
    slurm: Slurm | None = None
    split_seed: int = 0
    seeds: tuple[int, ...] = (0,)
    together: bool = False
    what: str = ""
    command: str = ""
    watch: Callable[[], Any] | None = None
    say: Callable[[str], None] = print

    def __post_init__(self) -> None:
        object.__setattr__(self, "protocol", canonical(self.protocol))
        if self.preset not in PRESETS:
            raise BadInput(f"Unknown preset {self.preset!r}: choose one of {', '.join(PRESETS)}.", "preset")
        for name in ("splits", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} is {value}: ask for at least 1.", name)
        if min(self.sizes, default=0) < 10 or len(set(self.sizes)) < len(self.sizes):
            given = " ".join(map(str, self.sizes))
            raise BadInput(f"sizes is {given}: give different numbers of ROIs, each 10 or more.", "sizes")
        check_device(self.device)
        if self.cohort.path is None:
            raise BadInput("A reproduction needs a cohort on disk: save it first with cohort.save(folder).")

    @property
    def n_splits(self) -> int:
        """How many splits."""
        return self.splits or PRESETS[self.preset].splits

    @property
    def recipe_name(self) -> str:
        """The recipe's name."""
        return PRESETS[self.preset].recipe

    @property
    def recipe(self) -> Recipe:
        """How networks are trained, before what a model's catalogue row sets."""
        return self.recipe_for(None)

    def recipe_for(self, model: str | None) -> Recipe:
        """Return the recipe of one model: its catalogue row, then the preset, then what was asked for."""
        changes = dict(PRESETS[self.preset].settings)
        if self.preset == "standard":  # small cohorts still make the steps that the model needs
            changes["min_steps"] = find_recipe(self.recipe_name, model).min_steps
        asked = {**({"epochs": self.epochs} if self.epochs else {}), **self.changes}
        if "epochs" in asked:
            changes.pop("min_steps", None)
        return find_recipe(self.recipe_name, model, **{**changes, **asked})

    @property
    def dataset(self) -> str:
        """Whose printed numbers stand beside ours: ABCD's at 360 ROIs, ABIDE's otherwise."""
        return "ABCD" if self.cohort.n_rois == 360 else "ABIDE"

    def variant(self, name: str, model: str, **options: Any) -> Variant:
        """Return a variant with this plan's recipe and options."""
        merged = {**options, **self.model_options.get(model, {})}
        return Variant(name, model, merged, self.recipe_name, self.recipe_for(model))

    def asks_for(self, variant: str, model: str) -> bool:
        """Whether ``only`` names a variant, by its own name or its model's; without it all are asked for."""
        return not self.only or variant in self.only or model in self.only

    def asked(self, variants: Sequence[Variant]) -> list[Variant]:
        """Return the variants that are asked for; a name that is none of them is refused."""
        known = {word for v in variants for word in (v.name, v.model)}
        unknown = [word for word in self.only if word not in known]
        if unknown:
            names = ", ".join(v.name for v in variants)
            raise BadInput(f"only names {', '.join(unknown)}, but the rows here are {names}.", "only")
        return [v for v in variants if self.asks_for(v.name, v.model)]

    def named_splits(self) -> list[Split]:
        """Return the splits with their names; say where they are fewer, or leave subjects out."""
        found = named_splits(self.cohort, self.label, self.protocol, n_splits=self.n_splits, seed=self.split_seed)
        for sentence in split_notices(self.cohort, self.protocol, found, n_splits=self.n_splits):
            self.say(sentence)
        return found

    def class_name(self, value: object) -> str:
        """Return a class in words, such as ``diagnosis = 1 (ASD)``."""
        words = self.cohort.levels.get(self.label, {}).get(str(value))
        return f"{self.label} = {value}" + (f" ({words})" if words else "")

    def check_binary(self) -> None:
        """Refuse a label that does not have two classes: every table of the paper is about two."""
        task = task_for(self.cohort.labels(self.label))
        if task.n_outputs != 2:
            raise BadInput(
                f"Label {self.label!r} of {self.cohort.path} does not have two classes, and the paper's tables are "
                "about two: choose another label.",
                "label",
            )


def prepare(
    plan: Plan, variants: Sequence[Variant], splits: Sequence[Split] = ()
) -> tuple[list[Variant], dict[str, str], dict[str, str]]:
    """Return the variants to run, why others cannot be, and what was changed to fit the cohort; both are said.

    With ``splits``, networks whose batch the smallest training set does not fill cannot be run.

    Raises
    ------
    BadInput
        Where none can be run.
    """
    n_train = min((len(split.train) for split in splits), default=None)
    kept, missing, changed = fit_variants(plan.cohort, plan.asked(variants), n_train)
    say_fitted(missing, changed, plan.say)
    if not kept:
        raise BadInput(f"Nothing can be run on {plan.cohort.path}: {next(iter(missing.values()))}.")
    return kept, missing, changed


# Name -> the module with the function that makes its table, Markdown and figure, which has the same name; cheap ones
# first, so that `all` shows something early.
PARTS = {
    "parameters": "_cost",
    "theory": "_theory_report",
    "runtime": "_cost",
    "complexity": "_cost",
    "table1": "_tables",
    "figure4": "_figures",
    "difference": "_figures",
    "figure3b": "_figures",
    "features": "_tables",
    "curves": "_curves",
    "table2": "_tables",
    "figure3a": "_figures",
    "learning-curve": "_curves",
}
WITHOUT_LABEL = ("parameters", "theory", "runtime", "complexity")  # nothing is predicted in them
WITHOUT_ROWS = ("parameters", "theory")
OF_ONE_MODEL = ("figure3a", "figure3b", "figure4", "difference")


def reproduce(what: str, plan: Plan) -> list[Path]:
    """Reproduce one table or figure of the paper, or all; return the files.

    Parameters
    ----------
    what : str
        A name of :data:`PARTS`, or ``all``: each part then has its own folder in ``plan.out``.
    plan : Plan

    Returns
    -------
    list of path
        ``WHAT.csv``, ``WHAT.md``, ``WHAT.png`` and ``WHAT.pdf`` of each part.

    Examples
    --------
    >>> import bnt
    >>> cohort = bnt.load_cohort("cohort")
    >>> from pathlib import Path
    >>> from bnt.paper import Plan, reproduce
    >>> plan = Plan(cohort, Path("parameters"), say=lambda line: None)
    >>> sorted(file.name for file in reproduce("parameters", plan))
    ['parameters.csv', 'parameters.md', 'parameters.pdf', 'parameters.png']
    """
    if what != "all":
        return _one(what, plan)
    if plan.only:
        raise BadInput("only chooses rows of one table: name the table instead of all.", "only")
    files: list[Path] = []
    refused: list[str] = []
    for name in PARTS:
        plan.say(f"{name}:")
        try:
            files += _one(name, replace(plan, out=plan.out / name, together=True))
        except BadInput as error:  # the other parts can still be made
            plan.say(str(error))
            refused.append(f"{name} ({str(error).rstrip('.')})")
    if refused:
        raise BadInput(f"{len(refused)} of {len(PARTS)} parts could not be made: {'; '.join(refused)}.")
    return files


def _check_meant(what: str, plan: Plan) -> None:
    """Refuse options that mean nothing to a part; in ``all`` they are meant for other parts."""
    without_meaning = {
        "only": bool(plan.only) and what in WITHOUT_ROWS,
        "model": plan.model != "bnt" and what not in OF_ONE_MODEL,
        "sizes": plan.sizes != SIZES and what != "complexity",
    }
    for name, wrong in without_meaning.items():
        if wrong and not plan.together:
            raise BadInput(f"{name} means nothing to {what}: leave it out.", name)


def _one(what: str, plan: Plan) -> list[Path]:
    if what not in PARTS:
        raise BadInput(f"Unknown part {what!r}: choose one of {', '.join(PARTS)} or all.", "what")
    _check_meant(what, plan)
    from bnt.paper._grid import check_output, open_output, write_facts, write_outputs

    plan = replace(plan, what=what)
    if what not in WITHOUT_LABEL:
        plan.check_binary()
    check_output(plan.out, what)
    started = time.monotonic()
    table, text, figure = getattr(import_module(f"bnt.paper.{PARTS[what]}"), what.replace("-", "_"))(plan)
    folder = open_output(plan.out, what)
    with held(folder / ".lock"):
        files = write_outputs(folder, what, table, text, figure)
        write_facts(folder, facts(what, plan) | {"seconds": round(time.monotonic() - started, 1)})
    return files


def facts(what: str, plan: Plan) -> dict[str, Any]:
    """Return what decides the numbers: command, cohort, protocol, recipe, seeds and versions."""
    label = None if what in WITHOUT_LABEL else plan.label
    return {
        "what": what,
        "command": plan.command,
        "cohort": str(plan.cohort.path),
        "data_sha256": data_digest(plan.cohort, *([label] if label else [])),
        "label": label,
        "protocol": plan.protocol,
        "preset": plan.preset,
        "n_splits": plan.n_splits,
        "split_seed": plan.split_seed,
        "seeds": list(plan.seeds),
        "recipe": asdict(plan.recipe),
        "versions": versions(),
    }
