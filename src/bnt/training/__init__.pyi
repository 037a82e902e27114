__all__ = [
    "make_learner",
    "Learner",
    "RECIPES",
    "Recipe",
    "RunConfig",
    "TrainedRun",
    "describe",
    "find_recipe",
    "train_run",
]

from ._config import RunConfig
from ._learner import Learner, make_learner
from ._recipe import RECIPES, Recipe, find_recipe
from ._run import describe, train_run
from ._trained import TrainedRun
