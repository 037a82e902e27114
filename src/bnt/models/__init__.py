"""Every model by name. One file a paper; the catalogue names them without importing torch."""

from bnt.models._catalog import CATALOG, Entry, list_models
from bnt.models._registry import count_parameters, create_model, find_entry, model_options

__all__ = ["CATALOG", "Entry", "count_parameters", "create_model", "find_entry", "list_models", "model_options"]
