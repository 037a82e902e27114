"""The plan of a reproduction: cohort, splits, budget and variants; and the numbers that the paper prints.

They are kept as printed, misprints included; what is known to be wrong with them is said where they are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bnt.cohort import Cohort
from bnt.errors import BadInput
from bnt.splits import Split, named_splits
from bnt.splits._protocols import canonical
from bnt.studies._job import Variant, fit_variants, say_fitted
from bnt.studies._slurm import Slurm
from bnt.training._config import check_device
from bnt.training._recipe import Recipe, find_recipe
from bnt.training._task import task_for

Value = tuple[float, float]  # mean, SD
NAN = float("nan")
NOTHING: Value = (NAN, NAN)
DATASETS = ("ABIDE", "ABCD")
METRICS = ("auroc", "accuracy", "sensitivity", "specificity")
N_RUNS = 5

# Table 1: method -> AUROC, accuracy, sensitivity, specificity.
TABLE1: dict[str, dict[str, tuple[Value, Value, Value, Value]]] = {
    "ABIDE": {
        "SAN": ((71.3, 2.1), (65.3, 2.9), (55.4, 9.2), (68.3, 7.5)),
        "Graphormer": ((63.5, 3.7), (60.8, 2.7), (78.7, 22.3), (36.7, 23.5)),
        "VanillaTF": ((76.4, 1.2), (65.2, 1.2), (66.4, 11.4), (71.1, 12.0)),
        "BrainGNN": ((62.4, 3.5), (59.4, 2.3), (36.7, 24.0), (70.7, 19.3)),
        "BrainGB": ((69.7, 3.3), (63.6, 1.9), (63.7, 8.3), (60.4, 10.1)),
        "BrainNetCNN": ((74.9, 2.4), (67.8, 2.7), (63.8, 9.7), (71.0, 10.2)),
        "FBNETGNN": ((75.6, 1.2), (68.0, 1.4), (64.7, 8.7), (62.4, 9.2)),
        "BrainNetGNN": ((55.3, 1.9), (51.2, 5.4), (67.7, 37.5), (33.9, 34.2)),
        "DGM": ((52.7, 3.8), (60.7, 12.6), (53.8, 41.2), (51.1, 40.9)),
        "BrainNetTF": ((80.2, 1.0), (71.0, 1.2), (72.5, 5.2), (69.3, 6.5)),
    },
    "ABCD": {
        "SAN": ((90.1, 1.2), (81.0, 1.3), (84.9, 3.5), (77.5, 4.1)),
        "Graphormer": ((89.0, 1.4), (80.2, 1.3), (81.8, 11.6), (82.4, 7.4)),
        "VanillaTF": ((94.3, 0.7), (85.9, 1.4), (87.7, 2.4), (82.6, 3.9)),
        "BrainGNN": (NOTHING, NOTHING, NOTHING, NOTHING),  # out of memory
        "BrainGB": ((91.9, 0.3), (83.1, 0.5), (84.6, 4.3), (81.5, 3.9)),
        "BrainNetCNN": ((93.5, 0.3), (85.7, 0.8), (87.9, 3.4), (83.0, 4.4)),
        "FBNETGNN": ((94.5, 0.7), (87.2, 1.2), (87.0, 2.5), (86.7, 2.8)),
        "BrainNetGNN": ((75.3, 5.2), (67.5, 4.7), (67.7, 5.7), (68.0, 6.5)),
        "DGM": ((76.8, 19.0), (68.6, 8.1), (40.5, 29.7), (95.6, 4.2)),
        "BrainNetTF": ((96.2, 0.3), (88.4, 0.4), (89.4, 2.6), (88.4, 1.5)),
    },
}

# Table 2: readout -> AUROC with SAN, Graphormer, VanillaTF.
BACKBONES = ("SAN", "Graphormer", "VanillaTF")
TABLE2: dict[str, dict[str, tuple[Value, Value, Value]]] = {
    "ABIDE": {
        "MEAN": ((63.7, 2.4), (50.1, 1.1), (73.4, 1.4)),
        "MAX": ((61.9, 2.5), (54.5, 3.6), (75.6, 1.4)),
        "SUM": ((62.0, 2.3), (54.1, 1.3), (70.3, 1.6)),
        "SortPooling": ((68.7, 2.3), (51.3, 2.2), (72.4, 1.3)),
        "DiffPool": ((57.4, 5.2), (50.5, 4.7), (62.9, 7.3)),
        "CONCAT": ((71.3, 2.1), (63.5, 3.7), (76.4, 1.2)),
        "OCRead": ((70.6, 2.4), (64.9, 2.7), (80.2, 1.0)),
    },
    "ABCD": {
        "MEAN": ((88.5, 0.9), (87.6, 1.3), (91.3, 0.7)),
        "MAX": ((87.4, 1.1), (81.6, 0.8), (94.4, 0.6)),
        "SUM": ((84.2, 0.8), (71.5, 0.9), (91.6, 0.6)),
        "SortPooling": ((84.6, 1.1), (86.7, 1.0), (89.9, 0.6)),
        "DiffPool": ((78.1, 1.5), (70.0, 1.9), (83.9, 1.3)),
        "CONCAT": ((90.1, 1.2), (89.0, 1.4), (94.3, 0.7)),
        "OCRead": ((91.2, 0.7), (90.2, 0.7), (96.2, 0.4)),
    },
}

# Appendix B: AUROC of VanillaTF with different node features.
FEATURES: dict[str, dict[str, Value]] = {
    "ABIDE": {"profile": (76.4, 1.2), "identity": (75.4, 1.9), "eigen": (75.9, 2.1)},
    "ABCD": {"profile": (94.3, 0.7), "identity": (94.5, 0.6), "eigen": (94.0, 0.8)},
}

# Appendix D: minutes of training on an NVIDIA Quadro RTX 8000.
RUNTIME: dict[str, dict[str, Value]] = {
    "ABIDE": {
        "SAN": (93.01, 0.96),
        "Graphormer": (133.52, 0.54),
        "VanillaTF": (2.32, 0.10),
        "BrainNetTF": (1.98, 0.04),
    },
    "ABCD": {
        "SAN": (908.05, 3.6),
        "Graphormer": (4089.86, 5.7),
        "VanillaTF": (36.26, 2.12),
        "BrainNetTF": (30.31, 1.16),
    },
}

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

# Appendix H: difference score of the assignments.
DIFFERENCE: dict[str, dict[str, Value]] = {
    "ABIDE": {"random": (0.067, 0.016), "orthonormal": (0.085, 0.015)},
    "ABCD": {"random": (0.125, 0.010), "orthonormal": (0.142, 0.014)},
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
    jobs, threads, device, engine, address, slurm, split_seed, seeds
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
            raise BadInput(f"Unknown preset {self.preset!r}: choose one of {', '.join(PRESETS)}.", parameter="preset")
        for name in ("splits", "epochs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name} is {value}: ask for at least 1.", parameter=name)
        if min(self.sizes, default=0) < 10 or len(set(self.sizes)) < len(self.sizes):
            given = " ".join(map(str, self.sizes))
            raise BadInput(f"sizes is {given}: give different numbers of ROIs, each 10 or more.", parameter="sizes")
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
            raise BadInput(f"only names {', '.join(unknown)}, but the rows here are {names}.", parameter="only")
        return [v for v in variants if self.asks_for(v.name, v.model)]

    def named_splits(self) -> list[Split]:
        """Return the splits with their names."""
        return named_splits(self.cohort, self.label, self.protocol, n_splits=self.n_splits, seed=self.split_seed)

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
                parameter="label",
            )


def prepare(plan: Plan, variants: Sequence[Variant]) -> tuple[list[Variant], dict[str, str], dict[str, str]]:
    """Return the variants to run, why others cannot be, and what was changed to fit the cohort; both are said.

    Raises
    ------
    BadInput
        Where none can be run.
    """
    kept, missing, changed = fit_variants(plan.cohort, plan.asked(variants))
    say_fitted(missing, changed, plan.say)
    if not kept:
        raise BadInput(f"Nothing can be run on {plan.cohort.path}: {next(iter(missing.values()))}.")
    return kept, missing, changed
