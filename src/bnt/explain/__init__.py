"""What a run saw: attention, clusters, edges, and one subject's prediction; names are imported when first used."""

from importlib import import_module
from typing import Any

_HOME = {
    "Networks": "networks",
    "mean_attention": "attention",
    "attention_by_network": "attention",
    "network_enrichment": "attention",
    "member_assignments": "clusters",
    "difference_score": "clusters",
    "agreement": "clusters",
    "clustering_stability": "clusters",
    "EdgeMap": "edges",
    "edge_map": "edges",
    "attributions": "edges",
    "baseline_edges": "patterns",
    "map_stability": "stability",
    "sanity_check": "stability",
    "precision": "stability",
    "planted_edges": "stability",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"bnt.explain._{_HOME[name]}"), name)
    raise AttributeError(f"module 'bnt.explain' has no attribute {name!r}")
