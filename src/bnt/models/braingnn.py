"""BrainGNN (Li et al., Medical Image Analysis 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn import Output
from bnt.nn.inputs import check_connectomes
from bnt.nn.roi_conv import RoiConv, partial_correlations, two_hops
from bnt.nn.topk import Kept, TopKPool

EDGES = ("absolute", "partial")


class BrainGNN(nn.Module):
    """Two ROI-aware graph convolutions, each followed by a pooling that keeps half of the ROIs.

    "BrainGNN: interpretable brain graph neural network for fMRI analysis", Medical Image Analysis 74.

    - Ra-GConv: x_i' = sum_j a_ij W_j x_j + b over the neighbours of i and itself, with W_j = K_0 + sum_c relu(t_jc)
      K_c from 8 communities and a the softmax of the edge weights into i, where the self-loop weighs 1.
    - R-pool: s = X w / |w|, standardised over the graph's nodes; the best half is kept and multiplied by
      sigmoid(s). Between the two convolutions the edges of the kept nodes become (A + I)^2 without its diagonal.
    - Readout: maximum and mean of the kept nodes after each pooling, side by side.
    - Head: Linear 32, ReLU, batch norm, dropout, Linear 512, ReLU, batch norm, dropout, Linear C.
    - Loss: TPK, -mean log s of the kept - mean log (1 - s) of the others, of both poolings; GLC, the spread of the
      first pooling's scores within a class, tr(S^T L S) / n^2; unit loss (|w| - 1)^2, whose published weight is 0.

    Parameters
    ----------
    n_rois : int
        V.
    n_classes : int
        C; 1 for regression.
    feature_dim : int, optional
        Length of the node features. None takes the connection profile itself; otherwise a learned linear map brings it
        to this length.
    width : int
        Length of a node's embedding after each convolution.
    ratio : float
        Share of nodes that each pooling keeps.
    dropout : float
        In the head.
    edges : {"absolute", "partial"}
        Edge weights: absolute values of the given matrix, or of partial correlations computed from it (shrunk by 0.1).
    tpk_weight, glc_weight, unit_weight : float
        Weights of the auxiliary losses.
    released : bool
        The behaviour of the published code where it changes numbers.

    Notes
    -----
    Where this departs from the paper or its code, and what we chose:

    - The published edges are absolute partial correlations after Fisher z, beside profiles of correlations. A
      cohort gives one matrix: the default takes its absolute values as edges; ``edges="partial"`` inverts it
      (``braingnn-released`` does so). Zero entries, such as those of a constant ROI, are no edges.
    - ``released=True``: scores are not standardised; they pass a sigmoid in the pooling, another before TPK and a
      third before GLC; and both losses see the kept nodes only, in the order of their scores, so that GLC compares
      ranks instead of ROIs. The default takes one sigmoid and all ROIs, as the paper's equations read.
    - There is no activation between convolution and pooling, as in the published code.
    - The paper aggregates by a mean; the published code declares one and sums, which is the same here, the weights
      being a softmax.
    - The comparison of Kan 2022 searched "feature dimensions" of 100 and 200 and does not say how a profile of V
      entries was shortened: the learned map of ``feature_dim`` is ours.
    - With soft labels (mixup) a subject counts for each class by its share. Regression has no classes and no GLC.
    - The losses are means over subjects, so that they weigh less against a cross-entropy summed over the batch.
    - Published training: Adam 0.01 halved every 20 epochs, weight decay 5e-3, batch 100; all of it is the recipe's
      to set.
    """

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        feature_dim: int | None = None,
        width: int = 32,
        ratio: float = 0.5,
        dropout: float = 0.5,
        edges: str = "absolute",
        tpk_weight: float = 0.1,
        glc_weight: float = 0.1,
        unit_weight: float = 0.0,
        released: bool = False,
    ) -> None:
        super().__init__()
        if edges not in EDGES:
            raise BadInput(f"edges is {edges!r}; it can be {', '.join(EDGES)}.")
        if feature_dim is not None and feature_dim < 1:
            raise BadInput(f"feature_dim is {feature_dim}; give the length of the node features, at least 1.")
        self.n_rois, self.n_classes, self.edges, self.released = n_rois, n_classes, edges, released
        self.tpk_weight, self.glc_weight, self.unit_weight = tpk_weight, glc_weight, unit_weight
        self.shorten = None if feature_dim is None else nn.Linear(n_rois, feature_dim, bias=False)
        self.conv1 = RoiConv(n_rois, feature_dim or n_rois, width)
        self.pool1 = TopKPool(width, ratio, "sigmoid", standardise=not released)
        self.conv2 = RoiConv(n_rois, width, width)
        self.pool2 = TopKPool(width, ratio, "sigmoid", standardise=not released)
        self.head = nn.Sequential(
            nn.Linear(4 * width, width),
            nn.ReLU(),
            nn.BatchNorm1d(width),
            nn.Dropout(dropout),
            nn.Linear(width, 512),
            nn.ReLU(),
            nn.BatchNorm1d(512),
            nn.Dropout(dropout),
            nn.Linear(512, n_classes),
        )

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Return the answer for connectomes (B, V, V).

        Parameters
        ----------
        x : Tensor, (B, V, V)
            Connectomes; row i is the connection profile of ROI i.
        series : optional
            Not used; part of every model's interface.
        target : Tensor, (B, C), optional
            Soft labels; with them the auxiliary losses are returned.
        explain : bool
            Whether to return the first pooling's scores, between 0 and 1, as assignments (B, V, 1).
        """
        check_connectomes(x, self.n_rois)
        first, second = self._pooled(x)
        embedding = torch.cat([first.z.amax(1), first.z.mean(1), second.z.amax(1), second.z.mean(1)], -1)
        loss = None if target is None else self._loss(first, second, target)
        return Output(self.head(embedding), loss, (), torch.sigmoid(first.scores)[..., None] if explain else None)

    def check_inputs(self, kind: str, inputs: str) -> None:
        """Refuse connectomes that partial correlations cannot be computed from.

        Parameters
        ----------
        kind : str
            The cohort's kind of connectome.
        inputs : str
            How the recipe gives them to the model.
        """
        if self.edges == "partial" and (kind == "partial" or inputs != "raw"):
            what = "are partial correlations already" if kind == "partial" else f"are given {inputs} by the recipe"
            raise BadInput(
                f"edges='partial' computes partial correlations from correlations, and the connectomes {what}: set "
                "edges=absolute, or give correlations as they are."
            )

    def _pooled(self, x: Tensor) -> tuple[Kept, Kept]:
        adjacency = edge_weights(x, self.edges)
        z = x if self.shorten is None else self.shorten(x)
        first = self.pool1(self.conv1(z, adjacency), adjacency)
        adjacency = two_hops(first.adjacency)
        return first, self.pool2(self.conv2(first.z, adjacency, first.nodes), adjacency)

    def _loss(self, first: Kept, second: Kept, target: Tensor) -> Tensor:
        ratio = min(self.pool1.ratio, 1 - self.pool1.ratio)
        if self.released:
            twice = [torch.sigmoid(torch.sigmoid(p.scores.gather(1, p.nodes))) for p in (first, second)]
            tpk = released_topk_loss(twice[0], ratio) + released_topk_loss(twice[1], ratio)
            scores = torch.sigmoid(twice[0])
        else:
            tpk = topk_loss(first.scores, first.nodes.shape[1]) + topk_loss(second.scores, second.nodes.shape[1])
            scores = torch.sigmoid(first.scores)
        loss = self.tpk_weight * tpk
        if self.n_classes > 1:
            loss = loss + self.glc_weight * consistency_loss(scores, target)
        if self.unit_weight:
            for pool in (self.pool1, self.pool2):
                loss = loss + self.unit_weight * (pool.weight.norm() - 1).square()
        return loss


def edge_weights(x: Tensor, kind: str) -> Tensor:
    """Return non-negative edge weights (B, V, V) with a zero diagonal."""
    if kind == "partial":
        return partial_correlations(x).abs().clamp_max(0.999).atanh()
    return x.abs() - torch.diag_embed(x.abs().diagonal(dim1=-2, dim2=-1))


def topk_loss(scores: Tensor, n_kept: int) -> Tensor:
    """Return the TPK loss of scores (B, N) before the sigmoid: kept ones to 1, the others to 0."""
    ranked = scores.sort(dim=1, descending=True).values
    loss = -F.logsigmoid(ranked[:, :n_kept]).mean()
    return loss if n_kept == ranked.shape[1] else loss - F.logsigmoid(-ranked[:, n_kept:]).mean()


def released_topk_loss(scores: Tensor, ratio: float) -> Tensor:
    """Return the TPK loss as published: the best and the worst share of the kept nodes' scores (B, k)."""
    ranked = scores.sort(dim=1).values
    n = max(int(ratio * ranked.shape[1]), 1)
    return -(ranked[:, -n:] + 1e-10).log().mean() - (1 - ranked[:, :n] + 1e-10).log().mean()


def consistency_loss(scores: Tensor, target: Tensor) -> Tensor:
    """Return the GLC loss: over classes, tr(S^T L S) / n^2 with L = D - W and W the products of class shares.

    With hard labels W is all ones within a class. The trace is n sum |s|^2 - |sum s|^2, so no (B, B) matrix is made.
    """
    n = target.sum(0).clamp_min(1e-12)  # (C,)
    mean = target.T @ scores / n[:, None]  # (C, N)
    square = target.T @ scores.square().sum(1) / n  # (C,)
    return (square - mean.square().sum(1)).sum()
