"""BrainGNN: graph convolution with ROI-specific weights, and pooling that selects ROIs."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import Network, Output, check_choice, check_connectomes
from bnt.nn._readouts import Kept, TopKPool

# -- edges and node features ---------------------------------------------------------------------------


def edge_weights(x: Tensor) -> Tensor:
    """Return non-negative edge weights (B, V, V) with a zero diagonal."""
    return without_diagonal(x.abs())


def without_diagonal(x: Tensor) -> Tensor:
    """Return matrices (B, V, V) with a zero diagonal."""
    return x.masked_fill(torch.eye(x.shape[-1], dtype=torch.bool, device=x.device), 0.0)


def fisher_z(x: Tensor) -> Tensor:
    """Return the arctanh of correlations, those beyond 1 - 1e-6 set to it."""
    return x.clamp(-1 + 1e-6, 1 - 1e-6).atanh()


def profiles(x: Tensor) -> Tensor:
    """Return Fisher z (B, V, V) with a zero diagonal; a matrix that has one already is taken for Fisher z."""
    done = (x.diagonal(dim1=-2, dim2=-1) == 0).all(-1)[:, None, None]
    return torch.where(done, x, without_diagonal(fisher_z(x)))


# -- Ra-GConv: ROI-aware graph convolution -------------------------------------------------------------


class RoiConv(nn.Module):
    """Ra-GConv: ``x_i' = sum_j a_ij W_j x_j + b``, with ``W_j = sum_c relu(t_jc) K_c + K_0``.

    The weights of a ROI are the same for all subjects. They are made once as (V, in, out), not once per subject;
    where pooling left each subject other ROIs, the mixture is taken of the products instead of the weights.

    Parameters
    ----------
    n_rois : int
        V.
    in_features, out_features : int
        Lengths of a node's embedding.
    n_communities : int
        Number of weight matrices that ROIs mix.
    """

    def __init__(self, n_rois: int, in_features: int, out_features: int, n_communities: int = 8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.membership = nn.Linear(n_rois, n_communities, bias=False)  # of a one-hot ROI: a column of its weight
        self.kernels = nn.Linear(n_communities, in_features * out_features)
        bound = in_features**-0.5
        self.bias = nn.Parameter(torch.empty(out_features).uniform_(-bound, bound))

    def weights(self) -> Tensor:
        """Return every ROI's weights, (V, in, out)."""
        return self.kernels(self._mixture()).view(-1, self.in_features, self.out_features)

    def _mixture(self) -> Tensor:
        return torch.relu(self.membership.weight.T)  # (V, communities)

    def forward(self, z: Tensor, adjacency: Tensor, rois: Tensor | None = None) -> Tensor:
        """Return new embeddings (B, N, out).

        Parameters
        ----------
        z : Tensor, (B, N, in)
        adjacency : Tensor, (B, N, N)
            Edge weights, row i those of the edges into node i; zero means no edge.
        rois : Tensor of int, (B, N), optional
            Which ROI each node is; without it node i is ROI i.
        """
        if rois is None:
            mapped = torch.bmm(z.transpose(0, 1), self.weights()).transpose(0, 1)  # (B, V, out)
        else:
            b, n, _ = z.shape
            shared = self.kernels.weight.view(self.in_features, -1)  # (in, out * communities)
            products = (z @ shared).view(b, n, self.out_features, -1)
            mapped = (products @ self._mixture()[rois][..., None]).squeeze(-1)
            mapped = mapped + z @ self.kernels.bias.view(self.in_features, self.out_features)
        return edge_softmax(adjacency) @ mapped + self.bias


def edge_softmax(adjacency: Tensor) -> Tensor:
    """Return the softmax (B, N, N) over the edges into each node, a self-loop of weight 1 among them."""
    loops = torch.eye(adjacency.shape[-1], dtype=torch.bool, device=adjacency.device)
    return adjacency.masked_fill(adjacency == 0, float("-inf")).masked_fill(loops, 1.0).softmax(-1)


def two_hops(adjacency: Tensor) -> Tensor:
    """Return (A + I)^2 without its diagonal: the weights of walks of up to two steps."""
    eye = torch.eye(adjacency.shape[-1], dtype=adjacency.dtype, device=adjacency.device)
    walks = adjacency + eye
    return (walks @ walks) * (1 - eye)


# -- R-pool's losses: TPK and GLC ----------------------------------------------------------------------


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


# -- the model -----------------------------------------------------------------------------------------

EDGES = ("absolute", "partial")
FEATURES = ("profile", "fisher-z")


class BrainGNN(Network):
    """Two ROI-aware graph convolutions, each followed by a pooling that keeps half of the ROIs.

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
        Edge weights: absolute values of the connectome, or Fisher z of absolute partial correlations of the whole time
        series, whose covariance is shrunk after Ledoit and Wolf.
    features : {"profile", "fisher-z"}
        Node features: rows of the connectome, or of its Fisher z with a zero diagonal.
    tpk_weight, glc_weight, unit_weight : float
        Weights of the auxiliary losses.
    released : bool
        The behaviour of the published code where it changes numbers.

    Notes
    -----
    Deviations from the paper or its code, and what we chose:

    - The published edges are absolute partial correlations after Fisher z, beside profiles of Fisher z, both with
      nilearn's Ledoit-Wolf covariance. The default needs no series: edges are absolute values of the connectome.
      ``braingnn-released`` has ``edges="partial"``, which a cohort without series cannot give, and
      ``features="fisher-z"``, which on a cohort of kind ``shrunk-z`` are the published ones and on one of Pearson
      correlations lack the shrinkage. Zero entries, such as those of a constant ROI, are not edges.
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
    - Published training: Adam 0.01 halved every 20 epochs, weight decay 5e-3, batch 100, 100 epochs, the epoch with
      the lowest validation loss. The row of ``braingnn-released`` sets all of it but the last: the epoch is selected
      by the recipe. The row of ``braingnn`` has 1e-3, on a cosine, the lowest rate of the paper's grid: with 0.01 its
      AUROC on ABIDE is lower (results/abide/braingnn_rate.csv).

    References
    ----------
    Li X, Zhou Y, Dvornek N, Zhang M, Gao S, Zhuang J, Scheinost D, Staib LH, Ventola P, Duncan JS (2021). BrainGNN:
    interpretable brain graph neural network for fMRI analysis. Medical Image Analysis 74.
    """

    small: ClassVar = {"width": 16}
    per_roi: ClassVar = {r"membership\.weight": {1: "v"}, r"conv1\.kernels\.(weight|bias)": {0: "vk"}}

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
        features: str = "profile",
        tpk_weight: float = 0.1,
        glc_weight: float = 0.1,
        unit_weight: float = 0.0,
        released: bool = False,
    ) -> None:
        super().__init__()
        check_choice("edges", edges, EDGES)
        check_choice("features", features, FEATURES)
        if feature_dim is not None and feature_dim < 1:
            raise BadInput(f"feature_dim is {feature_dim}; give the length of the node features, at least 1.")
        self.n_rois, self.n_classes, self.features, self.released = n_rois, n_classes, features, released
        self.series_kind = "partial" if edges == "partial" else ""  # what it is given as series
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
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`.

        With ``edges="partial"`` the series are partial correlations (B, V, V). The assignments returned, (B, V, 1), are
        the first pooling's scores between 0 and 1.
        """
        check_connectomes(x, self.n_rois)
        if self.series_kind and (series is None or series.shape != x.shape):
            given = "none" if series is None else f"{tuple(series.shape)}"
            raise BadInput(
                f"edges='partial' reads partial correlations of time series, {tuple(x.shape)} as series, and was given "
                f"{given}."
            )
        first, second = self._pooled(x, series if self.series_kind else None)
        embedding = torch.cat([first.z.amax(1), first.z.mean(1), second.z.amax(1), second.z.mean(1)], -1)
        loss = None if target is None else self._loss(first, second, target)
        return Output(self.head(embedding), loss, (), torch.sigmoid(first.scores)[..., None] if explain else None)

    def check_inputs(self, kind: str, inputs: str) -> None:
        """Refuse connectomes that are not correlations if their Fisher z is needed.

        Parameters
        ----------
        kind : str
            The cohort's kind of connectome.
        inputs : str
            How the recipe gives them to the model.
        """
        if self.features == "fisher-z" and (kind == "partial" or inputs != "raw"):
            what = "are partial correlations" if kind == "partial" else f"are given {inputs} by the recipe"
            raise BadInput(
                f"features='fisher-z' takes the arctanh of correlations, and the connectomes {what}: set "
                "features=profile, or give correlations as they are."
            )

    def _pooled(self, x: Tensor, partial: Tensor | None) -> tuple[Kept, Kept]:
        adjacency = edge_weights(x if partial is None else fisher_z(partial))
        z = x if self.features == "profile" else profiles(x)
        z = z if self.shorten is None else self.shorten(z)
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
