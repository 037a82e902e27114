__all__ = [
    "RECIPES",
    "Adjustments",
    "Learner",
    "Recipe",
    "RunConfig",
    "TrainedRun",
    "describe",
    "export_run",
    "find_recipe",
    "make_learner",
    "train_run",
]

from ._config import RunConfig, describe
from ._export import export_run
from ._learner import Learner, make_learner
from ._recipe import RECIPES, Adjustments, Recipe, find_recipe
from ._run import train_run
from ._trained import TrainedRun
