"""Search spaces of ``bnt tune``: the paper's grids, our own ranges, or a user's grid.

Names with ``recipe.`` before them are fields of the recipe; the others are options of the model. Where several names
share a cell they are set together.
"""

from __future__ import annotations

from itertools import product
from math import isfinite
from typing import Any, Protocol

from bnt.errors import BadInput
from bnt.models import find_entry, model_options
from bnt.training._recipe import find_recipe

PREFIX = "recipe."
Setting = dict[str, Any]

APPENDIX_F = "Kan et al. 2022, appendix F"
FIGURE_3A = "Kan et al. 2022, figure 3a (its number of clusters; appendix F has no grid for BNT)"
OURS = "ours"

# Each axis is a list of settings, one per cell; the grid is their product.
PAPER_GRIDS: dict[str, tuple[str, list[list[Setting]]]] = {
    "bnt": (FIGURE_3A, [[{"n_clusters": k} for k in (2, 3, 4, 5, 10, 50, 100)]]),
    "vanilla": (APPENDIX_F, [[{"n_layers": n} for n in (1, 2, 3)], [{"n_heads": n} for n in (2, 4, 6)]]),
    "brainnetcnn": (APPENDIX_F, [[{"dropout": p} for p in (0.3, 0.5, 0.7)]]),
    "braingb": (
        APPENDIX_F,
        [
            [{"readout": name} for name in ("mean", "max", "concat")],
            [{"message": name} for name in ("edge_weighted", "node_edge_concat", "node_concat")],
        ],
    ),
    "braingnn": (
        APPENDIX_F,
        [[{"recipe.lr": r} for r in (0.01, 0.005, 0.001)], [{"feature_dim": d} for d in (100, 200)]],
    ),
    "fbnetgen": (APPENDIX_F, [[{"encoder": name} for name in ("cnn", "gru")], [{"hidden": h} for h in (8, 12, 16)]]),
    # "the number of LPE and GT transformer layers {1, 2}": read as one number each; one number of heads for both
    "san": (
        APPENDIX_F,
        [
            [{"lpe_dim": d} for d in (4, 8, 16)],
            [{"lpe_layers": n} for n in (1, 2)],
            [{"n_layers": n} for n in (1, 2)],
            [{"n_heads": n, "lpe_heads": n} for n in (2, 4)],
        ],
    ),
    "graphormer": (APPENDIX_F, [[{"n_layers": n} for n in (1, 2)], [{"width": d} for d in (256, 512)]]),
    "svm": (OURS, [[{"C": 10.0**e} for e in range(-4, 3)]]),
    "logistic": (OURS, [[{"C": 10.0**e} for e in range(-4, 3)]]),
    "tangent-logistic": (OURS, [[{"C": 10.0**e} for e in range(-4, 3)]]),
    "ridge": (OURS, [[{"penalty": 10.0**e} for e in range(-3, 4)]]),
}

GRID_EPOCHS = {"san": 50}  # appendix F: every cell, and what it is compared with, is trained for as many

# kind, then low and high, or the choices
Range = tuple[str, Any, Any] | tuple[str, tuple[Any, ...]]

TRAINING: dict[str, Range] = {
    "recipe.lr": ("log", 1e-5, 3e-3),
    "recipe.weight_decay": ("log", 1e-6, 1e-2),
    "recipe.mixup": ("choice", (0.0, 0.2, 1.0)),
}

FREE_RANGES: dict[str, dict[str, Range]] = {
    "bnt": {
        "n_layers": ("int", 1, 3),
        "n_heads": ("choice", (1, 2, 4, 8)),
        "n_clusters": ("choice", (2, 4, 10, 50, 100)),
        "dropout": ("float", 0.0, 0.5),
    },
    "vanilla": {"n_layers": ("int", 1, 3), "n_heads": ("choice", (1, 2, 4, 8)), "dropout": ("float", 0.0, 0.5)},
    "brainnetcnn": {"dropout": ("float", 0.1, 0.8)},
    "braingb": {
        "readout": ("choice", ("mean", "max", "concat")),
        "message": ("choice", ("edge_weighted", "node_edge_concat", "node_concat")),
        "hidden": ("choice", (64, 128, 256)),
    },
    "braingnn": {"width": ("choice", (16, 32, 64)), "ratio": ("float", 0.3, 0.9), "dropout": ("float", 0.1, 0.7)},
    "fbnetgen": {
        "encoder": ("choice", ("cnn", "gru")),
        "hidden": ("choice", (8, 12, 16)),
        "window": ("choice", (4, 8)),
    },
    "san": {"lpe_dim": ("choice", (4, 8, 16)), "lpe_layers": ("int", 1, 2), "n_layers": ("int", 1, 2)},
    "graphormer": {"n_layers": ("int", 1, 2), "width": ("choice", (128, 256, 512)), "dropout": ("float", 0.0, 0.5)},
    "brainnetgnn": {"l1_weight": ("log", 1e-7, 1e-3)},
    "dgm": {"k": ("int", 3, 12), "embedding": ("choice", ("gcn", "mlp"))},
    "svm": {"C": ("log", 1e-5, 1e3), "space": ("choice", ("edges", "tangent"))},
    "logistic": {"C": ("log", 1e-5, 1e3)},
    "tangent-logistic": {"C": ("log", 1e-5, 1e3), "shrinkage": ("float", 0.05, 0.9)},
    "ridge": {"penalty": ("log", 1e-4, 1e4)},
}


def family_of(model: str) -> str:
    """Return the model whose grid a name shares: ``bnt-released`` is tuned as ``bnt``."""
    return model.removesuffix("-released")


def paper_grid(model: str) -> tuple[str, list[Setting]]:
    """Return the source of a model's grid and all its cells."""
    if family_of(model) not in PAPER_GRIDS:
        raise BadInput(
            f"The paper has no grid for {model!r} (it did not tune it); there is one for {', '.join(PAPER_GRIDS)}. "
            f"{_own(model, 'Use a free search, or give' if has_ranges(model) else 'Give')}",
            "grid",
        )
    source, axes = PAPER_GRIDS[family_of(model)]
    return source, [{k: v for part in cell for k, v in part.items()} for cell in product(*axes)]


def own_grid(model: str, axes: dict[str, list[Any]]) -> tuple[str, list[Setting]]:
    """Return a user's own grid, every combination of the values given, as :func:`paper_grid` returns the paper's.

    Parameters
    ----------
    axes : dict
        Options of the model, or fields of the recipe after ``recipe.``, and the values to try.
    """
    known, network = model_options(model), find_entry(model).trains_in_epochs
    for name, values in axes.items():
        if name.startswith(PREFIX) and not network and name != f"{PREFIX}refit":
            raise BadInput(f"{model} is not trained by a recipe, so {name} would change nothing.", "grid")
        for value in values:
            if name.startswith(PREFIX):
                find_recipe("default", model, **{name.removeprefix(PREFIX): value})  # refuses what no recipe can have
            elif name not in known:
                raise BadInput(
                    f"{model} has no option {name!r}; it has {', '.join(known)}, and fields of the recipe such as "
                    "recipe.lr.",
                    "grid",
                )
    cells = [dict(zip(axes, cell)) for cell in product(*axes.values())]
    names = [setting_name(cell) for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInput(f"The grid has {twice} twice (numbers count to four digits): give each value once.", "grid")
    words = [f"{name}={','.join(setting_name({'': v})[1:] for v in values)}" for name, values in axes.items()]
    return f"--grid {' '.join(words)}", cells  # as version 0.1.0 wrote it into study.json


def has_ranges(model: str) -> bool:
    """Whether there is a free search of a model: ranges of its own, or a network's training."""
    return family_of(model) in FREE_RANGES or find_entry(model).trains_in_epochs


def free_ranges(model: str) -> dict[str, Range]:
    """Return what a free search of a model varies; networks also, or only, vary how they are trained."""
    if not has_ranges(model):
        raise BadInput(
            f"There are no ranges to search {model!r} in, only for {', '.join(FREE_RANGES)}. {_own(model, 'Give')}",
            "grid",
        )
    network = find_entry(model).trains_in_epochs
    return {**FREE_RANGES.get(family_of(model), {}), **(TRAINING if network else {})}


def _own(model: str, verb: str) -> str:
    return f"{verb} your own values as a grid (options: bnt models {model})."


def setting_name(setting: Setting) -> str:
    """Return a setting as text, as ``bnt compare --models MODEL:...`` takes it."""

    def shown(value: Any) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return ",".join(f"{name}={shown(value)}" for name, value in setting.items())


BATCH = 4  # trials asked for at a time: fixed, so that the search does not depend on how many processes run it


class Search(Protocol):
    """What a tuning asks and tells."""

    source: str
    n_trials: int

    def ask(self) -> list[tuple[int, Setting]]:
        """Return the next settings with their numbers; none when the search is over."""
        ...

    def tell(self, number: int, score: float) -> None:
        """Learn the score of a setting; NaN where it could not be run."""
        ...


class GridSearch:
    """Every cell of a grid, once."""

    def __init__(self, source: str, cells: list[Setting]) -> None:
        self.source, self.n_trials = source, len(cells)
        self._cells: list[Setting] | None = cells

    def ask(self) -> list[tuple[int, Setting]]:
        """Return all cells the first time, none afterwards."""
        cells, self._cells = self._cells, None
        return list(enumerate(cells or []))

    def tell(self, number: int, score: float) -> None:
        """A grid learns nothing."""


class FreeSearch:
    """Optuna's tree-structured Parzen estimator, seeded: told the same scores, it asks for the same settings."""

    def __init__(self, ranges: dict[str, Range], n_trials: int, seed: int) -> None:
        try:
            import optuna
        except ImportError as error:
            raise BadInput(
                "Optuna is not installed: pip install 'brain-network-transformer[hpo]', or search a grid.", "search"
            ) from error
        if n_trials < 1:
            raise BadInput(f"n_trials is {n_trials}: give at least 1.", "n_trials")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.source, self.n_trials = f"Optuna {optuna.__version__}, TPE", n_trials
        self._ranges = ranges
        self._study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
        self._open: dict[int, Any] = {}
        self._fail = optuna.trial.TrialState.FAIL

    def ask(self) -> list[tuple[int, Setting]]:
        """Return the next few settings."""
        left = self.n_trials - len(self._study.trials)
        asked = []
        for _ in range(min(BATCH, left)):
            trial = self._study.ask()
            self._open[trial.number] = trial
            asked.append((trial.number, {name: _suggest(trial, name, r) for name, r in self._ranges.items()}))
        return asked

    def tell(self, number: int, score: float) -> None:
        """Tell Optuna a score, or that the setting failed."""
        trial = self._open.pop(number)
        if isfinite(score):
            self._study.tell(trial, score)
        else:
            self._study.tell(trial, state=self._fail)


def _suggest(trial: Any, name: str, given: Range) -> Any:
    if given[0] == "choice":
        return trial.suggest_categorical(name, list(given[1]))
    _, low, high = given  # type: ignore[misc]
    if given[0] == "int":
        return trial.suggest_int(name, low, high)
    # four digits are enough, and make the setting's name exact
    return float(f"{trial.suggest_float(name, low, high, log=given[0] == 'log'):.4g}")


def make_search(
    kind: str, model: str, n_trials: int, seed: list[int], axes: dict[str, list[Any]] | None = None
) -> Search:
    """Return a search for one split: of the paper's grid, of a user's ``axes`` in its place, or a free one."""
    if kind == "grid":
        return GridSearch(*(own_grid(model, axes) if axes else paper_grid(model)))
    if axes:
        raise BadInput(
            f"The grid gives every setting, so search = {kind!r} has nothing to search: give only one of them.",
            "search",
        )
    if kind == "free":
        return FreeSearch(free_ranges(model), n_trials, seed=1000 * seed[0] + seed[1])
    raise BadInput(f"Unknown search {kind!r}: choose grid or free.", "search")
