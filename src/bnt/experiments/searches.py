"""Where a trial's setting comes from: the next cell of a grid, or Optuna."""

from __future__ import annotations

from math import isfinite
from typing import Any, Protocol

from bnt.errors import BadInput
from bnt.experiments.tuning_grids import Range, Setting, free_ranges, own_grid, paper_grid

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
                "Optuna is not installed: pip install 'brain-network-transformer[hpo]', or use --search grid."
            ) from error
        if n_trials < 1:
            raise BadInput(f"--trials is {n_trials}: give at least 1.")
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
        raise BadInput(f"--grid gives every setting, so that there is nothing left for --search {kind}: give one.")
    if kind == "free":
        return FreeSearch(free_ranges(model), n_trials, seed=1000 * seed[0] + seed[1])
    raise BadInput(f"There is no search {kind!r}; there are grid and free.")
