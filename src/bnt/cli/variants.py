"""Models with options as one word of the command line: ``bnt:n_clusters=4,readout=mean``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bnt.cli.values import parse_settings
from bnt.errors import BadInput

if TYPE_CHECKING:
    from bnt.experiments.job import Variant

PREFIX = "recipe."


def split_outside(text: str) -> tuple[str, ...]:
    """Split at commas that are in no brackets and no quotes.

    Examples
    --------
    >>> split_outside("a=[1,2],b=mean")
    ('a=[1,2]', 'b=mean')
    """
    words, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
        if character == "," and not depth and not quote:
            words.append("")
        else:
            words[-1] += character
    return tuple(words)


def parse_variant(word: str, recipe: str, changes: dict[str, object]) -> Variant:
    """Return the variant that a word of ``--models`` means, under the name as it was given.

    Parameters
    ----------
    word : str
        A model's name, and after a colon its options, ``recipe.`` before those of the recipe:
        ``bnt:n_clusters=4,recipe.lr=1e-3``, ``my_models.py:GCN:hidden=8``.
    recipe : str
        The recipe to start from.
    changes : dict
        Fields of the recipe that were changed for all models.
    """
    from bnt.experiments.job import Variant
    from bnt.models import find_entry
    from bnt.models.own import short_name, split_word
    from bnt.training import find_recipe

    model, colon, text = split_word(word)
    if colon and not text:
        raise BadInput(f"--models {word!r} has a colon and no options after it, for example bnt:n_clusters=4.")
    if "," in model:
        raise BadInput(f"--models {word!r} has a comma: separate models by spaces, {' '.join(model.split(','))}.")
    odd = next((setting for setting in split_outside(text) if colon and "=" not in setting), "")
    if odd:
        raise BadInput(
            f"--models {word!r}: {odd!r} is not option=value, for example bnt:n_clusters=4; a model of your own is "
            "my_models.py:MyModel."
        )
    settings = parse_settings(split_outside(text), "--models") if colon else {}
    own = {name.removeprefix(PREFIX): value for name, value in settings.items() if name.startswith(PREFIX)}
    options = {name: value for name, value in settings.items() if not name.startswith(PREFIX)}
    made = find_recipe(recipe, model, **{**changes, **own})
    return Variant(short_name(word), find_entry(model).name, options, recipe, made)
