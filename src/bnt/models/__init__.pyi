__all__ = ["Entry", "count_parameters", "create_model", "expand_models", "find_entry", "list_models", "model_options"]

from ._catalog import Entry
from ._registry import count_parameters, create_model, expand_models, find_entry, list_models, model_options
