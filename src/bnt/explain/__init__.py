"""What a run saw: attention, clusters, edges, and one subject's prediction; names are imported when first used."""

from importlib import import_module
from typing import Any

_HOME = {
    "Networks": "rois",
    "mean_attention": "attention",
    "attention_by_network": "attention",
    "network_enrichment": "enrichment",
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
    "precision": "planted",
    "planted_edges": "planted",
    "subject_table": "subjects",
    "top_connections": "subjects",
    "TrainingProfile": "outliers",
    "venn_abers": "intervals",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"bnt.explain.{_HOME[name]}"), name)
    raise AttributeError(f"module 'bnt.explain' has no attribute {name!r}")
