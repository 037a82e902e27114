__all__ = [
    "Entry",
    "count_parameters",
    "create_model",
    "find_entry",
    "list_models",
    "model_options",
]

from ._catalog import Entry, count_parameters, create_model, find_entry, list_models, model_options
