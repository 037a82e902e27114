__all__ = [
    "EdgeMap",
    "Networks",
    "agreement",
    "attention_by_network",
    "attributions",
    "baseline_edges",
    "clustering_stability",
    "difference_score",
    "edge_map",
    "map_stability",
    "mean_attention",
    "member_assignments",
    "network_enrichment",
    "planted_edges",
    "precision",
    "sanity_check",
]

from ._attention import (
    Networks,
    agreement,
    attention_by_network,
    clustering_stability,
    difference_score,
    mean_attention,
    member_assignments,
    network_enrichment,
)
from ._decisions import baseline_edges
from ._edges import EdgeMap, attributions, edge_map
from ._stability import map_stability, planted_edges, precision, sanity_check
