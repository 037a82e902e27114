"""OCRead on parts of a brain: which functional network does an ROI belong to, seen from what surrounds it?

The paper (section 3.4) expects OCRead to pool the subgraph around a node or an edge for tasks about nodes and edges.
Here the graph is the mean connectome of a cohort, each ROI keeps its strongest connections, and OCRead pools the
neighbourhood of every ROI to one embedding. A linear classifier learns the network of two thirds of the ROIs and is
asked for the others. Nothing of an ROI's own network is read before.

Run it:  python docs/examples/ocread_brain_subgraphs.py [COHORT]     (simulated without a cohort; some seconds)
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from torch import Tensor

import bnt
from bnt.cohort._triangle import Networks
from bnt.nn import OCRead, edge_subgraphs, node_subgraphs


def strongest(connectome: Tensor, n: int = 5) -> Tensor:
    """Return 1 where either ROI is among the n strongest connections of the other, (V, V)."""
    weights = connectome.clone().fill_diagonal_(-torch.inf)
    links = torch.zeros_like(weights).scatter_(1, weights.topk(n).indices, 1.0)
    return torch.maximum(links, links.T)


def main(cohort: bnt.Cohort | None = None) -> tuple[float, float]:
    """Return the accuracy on ROIs that were not trained on, and that of naming the most frequent network."""
    cohort = cohort or bnt.simulate_cohort(n_subjects=60, n_rois=100, n_sites=3, series=False, seed=0)
    networks = Networks.of(cohort)
    if networks is None:
        raise SystemExit("The ROIs of this cohort have no networks: add a column network to its rois.tsv.")
    mean = cohort.batch(range(len(cohort))).mean(0)  # (V, V)
    links = strongest(mean)
    torch.manual_seed(0)
    readout = OCRead(width=cohort.n_rois, n_clusters=4)
    with torch.no_grad():
        around = readout.pool_subgraphs(mean, node_subgraphs(links, hops=1))  # (V, 4 V): one embedding an ROI
        edges = links.triu().nonzero()
        by_edge = readout.pool_subgraphs(mean, edge_subgraphs(links, edges, hops=1))
    rare = np.bincount(networks.codes)[networks.codes] < 3  # too few to be in every fold
    features, labels = around.numpy()[~rare], networks.codes[~rare]
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    accuracy = cross_val_score(LogisticRegression(max_iter=1000), features, labels, cv=folds).mean()
    chance = np.bincount(labels).max() / len(labels)
    print(f"subgraph embeddings: {tuple(around.shape)} by ROI, {tuple(by_edge.shape)} by connection")
    print(f"network of ROIs not trained on: accuracy {accuracy:.2f}; the most frequent network has {chance:.2f}")
    return float(accuracy), float(chance)


if __name__ == "__main__":
    main(bnt.load_cohort(sys.argv[1]) if len(sys.argv) > 1 else None)
