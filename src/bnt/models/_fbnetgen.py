"""FBNetGen: a graph generated from the time series, over which connection profiles are passed."""

from __future__ import annotations

from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import Network, Output, check_choice, check_connectomes, check_series
from bnt.nn._readouts import Head

# -- encoders: from the series of a ROI to an embedding ------------------------------------------------


class GruEncoder(nn.Module):
    """GRU: windows of a series through four layers of a bidirectional GRU.

    Each ROI's series is cut into T // w windows of w volumes (a remainder at the end is left out). The last states of
    both directions, each having seen all windows, go through dropout and two linear maps.

    Parameters
    ----------
    n_volumes : int
        T.
    window : int
        w, volumes a step reads; also the hidden units of each direction.
    out_features : int
        Length of the embedding.
    released : bool
        Read both directions at the last window, as published: the backward one has seen that window only.
    """

    def __init__(self, n_volumes: int, window: int, out_features: int, released: bool = False) -> None:
        super().__init__()
        if not 1 <= window <= n_volumes:
            raise BadInput(f"window is {window}; series of {n_volumes} volumes allow 1 to {n_volumes}.")
        self.window, self.released = window, released
        self.gru = nn.GRU(window, window, num_layers=4, bidirectional=True, batch_first=True)
        self.map = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(2 * window, window), nn.LeakyReLU(0.2), nn.Linear(window, out_features)
        )
        if released:  # one step from a zero state: these weights multiply zeros only
            self.gru.weight_hh_l3_reverse.requires_grad_(False)

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        whole = t - t % self.window
        steps = series[:, :whole].transpose(1, 2).reshape(b * v, -1, self.window)
        outputs, states = self.gru(steps)  # (B V, T / w, 2 w), (8, B V, w)
        last = outputs[:, -1] if self.released else torch.cat([states[-2], states[-1]], -1)
        return self.map(last).view(b, v, -1)


class ConvEncoder(nn.Module):
    """1-D CNN: three convolutions with batch norm and nothing between them.

    Each volume is standardised over its ROIs first, which takes out the mean over the brain at that time.

    Parameters
    ----------
    n_volumes : int
        T.
    window : int
        Kernel of the first convolution.
    out_features : int
        Length of the embedding.
    released : bool
        Changes nothing here.
    """

    def __init__(self, n_volumes: int, window: int, out_features: int, released: bool = False) -> None:
        super().__init__()
        pooled = ((n_volumes - window) // 2 + 1 - 14) // 16
        if window < 1 or pooled < 1:
            raise BadInput(
                f"The cnn encoder with window {window} needs {58 + window} volumes; n_volumes is {n_volumes}."
            )
        self.convolutions = nn.Sequential(
            nn.Conv1d(1, 32, window, stride=2),
            nn.BatchNorm1d(32),
            nn.Conv1d(32, 32, 8),
            nn.BatchNorm1d(32),
            nn.Conv1d(32, 16, 8),
            nn.BatchNorm1d(16),
            nn.MaxPool1d(16),
            nn.Flatten(),
        )
        self.map = nn.Sequential(nn.Linear(16 * pooled, 32), nn.LeakyReLU(0.2), nn.Linear(32, out_features))

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        centred = series - series.mean(2, keepdim=True)
        scaled = centred * (centred.square().mean(2, keepdim=True) + 1e-5).rsqrt()
        return self.map(self.convolutions(scaled.transpose(1, 2).reshape(b * v, 1, t))).view(b, v, -1)


# -- the generated graph and its loss ------------------------------------------------------------------


def over_rois(embeddings: Tensor) -> Tensor:
    """Return embeddings (B, V, E) standardised over the ROIs of each scan; those that do not vary become 0."""
    centred = embeddings - embeddings.mean(1, keepdim=True)
    return centred * (centred.square().mean(1, keepdim=True) + 1e-5).rsqrt()


def embedding_graph(embeddings: Tensor) -> Tensor:
    """Return the graph A = H H^T (B, V, V): products of embeddings (B, V, E) after a softmax over E."""
    shares = torch.softmax(embeddings, -1)
    return shares @ shares.mT


def group_loss(graph: Tensor, target: Tensor) -> Tensor:
    """Return how far graphs (B, V, V) are from the mean of their class, and how near those means are to each other.

    Classes without a subject in the batch are left out.
    """
    present = [c for c, n in enumerate(target.sum(0).tolist()) if n > 0]
    inside = graph.new_zeros(())
    means = []
    for c in present:
        share = target[:, c] / target[:, c].sum()
        means.append((share[:, None, None] * graph).sum(0))  # (V, V)
        inside = inside + share @ (graph - means[-1]).abs().mean((1, 2))
    pairs = [2 * (1 - (a - b).abs().mean()) for a, b in combinations(means, 2)]
    return inside + torch.stack(pairs).mean() if pairs else inside


# -- the model -----------------------------------------------------------------------------------------

ENCODERS = {"gru": GruEncoder, "cnn": ConvEncoder}
LONG_SCAN = 512  # volumes from which on the CNN is the default, as the paper's size for ABCD has it


class FBNetGen(Network):
    """A graph generated from the time series, over which connection profiles are passed three times.

    - Encoder: each ROI's series to E numbers, by a bidirectional GRU over windows or by a 1-D CNN.
    - Graph: A = H H^T with H the embeddings after a softmax over E; entries lie in (0, 1].
    - Predictor: three rounds of X <- f_l(X + (D^-1 A - 1 / V) X) starting from connection profiles, with D the row
      sums of A; f_1 = Linear V, LeakyReLU, Linear V, batch norm; f_2 = Linear V, LeakyReLU, batch norm; f_3 = Linear
      64, LeakyReLU, Linear 8, LeakyReLU, batch norm per ROI. Then 8V - 256 - 32 - C.
    - Loss: cross-entropy, a group loss (graphs of a class near their mean, means of classes apart) and a sparsity
      loss.

    Parameters
    ----------
    n_volumes : int
        T, volumes of each series that are read.
    encoder : {"auto", "gru", "cnn"}
        The encoder of series; ``auto`` is the CNN from 512 volumes on and the GRU below.
    hidden : int
        E. The comparison of Kan 2022 searched 8, 12 and 16. 0 is 8 for the CNN on 512 volumes or more, otherwise 16.
    window : int
        Volumes a step of the GRU reads, or kernel of the CNN's first convolution. 0 is 8 for the CNN on 512 volumes or
        more, otherwise 4.
    group_weight, sparsity_weight : float
        Weights of the auxiliary losses.
    released : bool
        The published message passing, which passes no messages, and the published end of the GRU.

    Notes
    -----
    Deviations from the paper or its code, and what we chose:

    - ``released=True``: the published contraction multiplies each node's features by its own row sum of A, so that
      nodes exchange no messages; and the GRU's output is read at the last window, where the backward direction
      has seen one window. The default takes the last state of each direction.
    - The A X of the paper's equation alone cannot be trained: ROIs have almost the same embedding and A is 1 / E
      everywhere (SD 3e-5 at the start), so that every ROI gets the same vector. In the default, without more
      parameters, embeddings are standardised over the ROIs of a scan before the softmax, and a node keeps its own
      features and receives the difference between the mean weighted by A and the plain mean of all nodes:
      (D^-1 A - 1 / V) X beside X.
    - Training gives a random window of T volumes of each scan, evaluation the first one, each ROI standardised
      within it; the published code takes the first 100 volumes and standardises by the mean and SD of the whole
      data set.
    - The published objective is 2 CE + group + 1e-4 |A|_1. Here the loop adds 1 CE, and both weights are halved
      instead.
    - |A|_1 sums over the batch, neither divided by its size nor by V^2, as published: it weighs much more against a
      mean cross-entropy (FBNetGen's own code) than against a summed one (Kan 2022).
    - The group loss is the published one for mixed labels, sum_c mean |A - A_c|_1 / V^2 + 2 (1 - |A_0 - A_1|_1 /
      V^2), with every subject counted by its share of the class. For more than two classes the second term is
      averaged over pairs. Regression has none. The published code takes squares instead when mixup is off; here the
      form is the same.
    - The GRU is defined for window sizes that divide T; a remainder at the end is left out here.
    - The variant with a learned function of all pairs in place of H H^T is not offered: the published one cannot be
      constructed without a GPU, and no printed number rests on it.
    - The paper's parameters (0.55 M and 1.18 M) fit gru with window 4 on ABIDE, and cnn with window 8, E = 8 on
      ABCD.

    References
    ----------
    Kan X, Cui H, Lukemire J, Guo Y, Yang C (2022). FBNetGen: task-aware GNN-based fMRI analysis via functional brain
    network generation. MIDL.
    """

    needs_series: ClassVar = True
    small: ClassVar = {"n_volumes": 32, "hidden": 4}
    per_roi: ClassVar = {
        r"round1\.0\.weight": {1: "v"},
        r"norm3\.(weight|bias|running)": {0: "v"},
        r"head\.0\.weight": {1: "vk"},
    }

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_volumes: int = 100,
        encoder: str = "auto",
        hidden: int = 0,
        window: int = 0,
        group_weight: float = 0.5,
        sparsity_weight: float = 5e-5,
        released: bool = False,
    ) -> None:
        super().__init__()
        if encoder == "auto":
            encoder = "cnn" if n_volumes >= LONG_SCAN else "gru"
        check_choice("encoder", encoder, ("auto", *ENCODERS))
        if hidden < 0 or window < 0:
            raise BadInput(f"hidden is {hidden} and window {window}; give numbers above 0, or 0 for the default.")
        long = encoder == "cnn" and n_volumes >= LONG_SCAN
        hidden, window = hidden or (8 if long else 16), window or (8 if long else 4)
        self.n_rois, self.n_classes, self.n_volumes, self.released = n_rois, n_classes, n_volumes, released
        self.group_weight, self.sparsity_weight = group_weight, sparsity_weight
        self.encoder = ENCODERS[encoder](n_volumes, window, hidden, released)
        v = n_rois
        self.round1 = nn.Sequential(nn.Linear(v, v), nn.LeakyReLU(0.2), nn.Linear(v, v))
        self.norm1 = nn.BatchNorm1d(v)
        self.round2 = nn.Sequential(nn.Linear(v, v), nn.LeakyReLU(0.2))
        self.norm2 = nn.BatchNorm1d(v)
        self.round3 = nn.Sequential(nn.Linear(v, 64), nn.LeakyReLU(0.2), nn.Linear(64, 8), nn.LeakyReLU(0.2))
        self.norm3 = nn.BatchNorm1d(v)
        self.head = Head(8 * v, n_classes, slope=0.2)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`.

        The attention returned, (B, 1, V, V), is the generated graph.
        """
        check_connectomes(x, self.n_rois)
        embeddings = self.encoder(check_series(series, x.shape[0], self.n_volumes, self.n_rois))  # (B, V, E)
        graph = embedding_graph(embeddings if self.released else over_rois(embeddings))  # (B, V, V)
        z = self.round1(self._pass(graph, x))
        z = self.norm1(z.flatten(0, 1)).view_as(z)  # one channel per feature, over subjects and ROIs
        z = self.round2(self._pass(graph, z))
        z = self.norm2(z.flatten(0, 1)).view_as(z)
        z = self.norm3(self.round3(self._pass(graph, z)))  # one channel per ROI
        loss = None if target is None else self._loss(graph, target)
        return Output(self.head(z.flatten(1)), loss, (graph[:, None],) if explain else ())

    def _pass(self, graph: Tensor, z: Tensor) -> Tensor:
        strength = graph.sum(-1, keepdim=True)  # (B, V, 1)
        return strength * z if self.released else z + graph @ z / strength - z.mean(1, keepdim=True)

    def _loss(self, graph: Tensor, target: Tensor) -> Tensor:
        loss = self.sparsity_weight * graph.sum()  # entries are positive: the sum is the L1 norm
        return loss + self.group_weight * group_loss(graph, target) if self.n_classes > 1 else loss
