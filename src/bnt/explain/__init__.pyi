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

from ._clusters import agreement, clustering_stability, difference_score, member_assignments
from ._edges import EdgeMap, attributions, edge_map
from ._inside import Networks, attention_by_network, mean_attention, network_enrichment
from ._patterns import baseline_edges
from ._stability import map_stability, planted_edges, precision, sanity_check
