"""Training: recipes, the loop, runs."""

from bnt.training._recipe import RECIPES, Recipe, find_recipe

__all__ = ["RECIPES", "Recipe", "find_recipe"]
