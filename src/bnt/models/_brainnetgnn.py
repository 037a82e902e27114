"""BrainNetGNN: a directed graph learned by attention between encoded time series, read by a gated graph network."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import Network, Output, check_connectomes, check_series
from bnt.nn._readouts import TopKPool

# -- encoder: from the series of a ROI to an embedding -------------------------------------------------


class DeepConvEncoder(nn.Module):
    """Four convolutions with ReLU and a linear map, shared by all ROIs.

    Weights are drawn orthogonal with gain sqrt(2), biases are zero.

    Parameters
    ----------
    n_volumes : int
        T.
    out_features : int
        Length of the embedding.
    """

    def __init__(self, n_volumes: int, out_features: int = 64) -> None:
        super().__init__()
        length = (((n_volumes - 4) // 2 + 1 - 3) - 3) // 2 + 1
        if n_volumes < 14 or length < 1:
            raise BadInput(f"n_volumes is {n_volumes}; the encoder's convolutions need at least 14 volumes.")
        self.layers = nn.Sequential(
            nn.Conv1d(1, 32, 4, stride=2),
            nn.ReLU(),
            nn.Conv1d(32, 64, 4),
            nn.ReLU(),
            nn.Conv1d(64, 64, 3, stride=2),
            nn.ReLU(),
            nn.Conv1d(64, 10, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(10 * length, out_features),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Conv1d | nn.Linear):
                nn.init.orthogonal_(layer.weight, gain=2**0.5)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, series: Tensor) -> Tensor:
        """Return embeddings (B, V, E) of series (B, T, V)."""
        b, t, v = series.shape
        return self.layers(series.transpose(1, 2).reshape(b * v, 1, t)).view(b, v, -1)


# -- graph network -------------------------------------------------------------------------------------

WIDTH = 24
RATIOS = (0.8, 0.8, 0.3)


class GatedGraphConv(nn.Module):
    """Gated graph convolution (Li et al. 2016): messages ``A Z W_s`` drive a GRU cell whose state is Z, for some steps.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_steps : int
        Rounds of messages; each has its own W.
    """

    def __init__(self, width: int, n_steps: int) -> None:
        super().__init__()
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(n_steps, width, width).uniform_(-bound, bound))
        self.cell = nn.GRUCell(width, width)

    def forward(self, z: Tensor, adjacency: Tensor) -> Tensor:
        """Return new embeddings (B, N, D); row i of the adjacency (B, N, N) weights the edges into node i."""
        for weight in self.weight:
            messages = adjacency @ (z @ weight)
            z = self.cell(messages.flatten(0, 1), z.flatten(0, 1)).view_as(z)
        return z


class Set2Set(nn.Module):
    """Set2Set (Vinyals et al. 2016): an LSTM queries the set of nodes a few times; the answer does not see their order.

    Parameters
    ----------
    width : int
        D; a graph becomes 2 D numbers.
    n_steps : int
        Number of queries.
    """

    def __init__(self, width: int, n_steps: int) -> None:
        super().__init__()
        self.width, self.n_steps = width, n_steps
        self.cell = nn.LSTMCell(2 * width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Pool (B, N, D) to (B, 2 D)."""
        b = z.shape[0]
        query = z.new_zeros(b, self.width)
        memory, answer = z.new_zeros(b, self.width), z.new_zeros(b, 2 * self.width)
        for _ in range(self.n_steps):
            query, memory = self.cell(answer, (query, memory))
            weights = (z @ query[..., None]).softmax(1)  # (B, N, 1)
            answer = torch.cat([query, (weights * z).sum(1)], -1)
        return answer


class GatedGraphNetwork(nn.Module):
    """Three gated graph convolutions with TopK pooling, three without, and a readout of 32 numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(GatedGraphConv(WIDTH, 2) for _ in range(2 * len(RATIOS)))
        self.pools = nn.ModuleList(TopKPool(WIDTH, ratio) for ratio in RATIOS)
        self.set2set = Set2Set(WIDTH, 2)
        self.reduce = nn.Sequential(nn.Linear(4 * WIDTH, 32), nn.ReLU())

    def forward(self, z: Tensor, adjacency: Tensor) -> Tensor:
        """Return (B, 32) from nodes (B, V, 24) and edges (B, V, V)."""
        for i, convolution in enumerate(self.convolutions):
            z = torch.relu(convolution(z, adjacency))
            if i < len(self.pools):
                kept = self.pools[i](z, adjacency)
                z, adjacency = kept.z, kept.adjacency
        return self.reduce(torch.cat([z.amax(1), z.mean(1), self.set2set(z)], -1))


# -- the model -----------------------------------------------------------------------------------------


def draw_weights(part: nn.Module | None, gain: float, *, whole: bool = False) -> None:
    """Draw the matrices of a module Xavier-normal; stacked ones one by one, or as one ``whole`` tensor as published."""
    for weight in [] if part is None else part.parameters():
        if weight.ndim > 1:
            for matrix in weight if weight.ndim == 3 and not whole else [weight]:
                nn.init.xavier_normal_(matrix, gain=gain)


class BrainNetGNN(Network):
    """A directed graph learned by attention between encoded time series, read by a gated graph network.

    It reads time series only; the connectome is not used.

    - Encoder: each ROI's series through four convolutions and a linear map to 64 numbers.
    - Attention: keys, values and queries of 24 numbers, then single-head attention over ROIs. Its outputs are the
      node features and its V x V weights, rows summing to 1, the edges.
    - Graph network: (gated graph convolution, ReLU, TopK pooling of 0.8, 0.8, 0.3) three times, gated graph
      convolution and ReLU three times; maximum, mean and Set2Set side by side; Linear 32, ReLU, Linear C.
    - Encoder classifier: all encoded series side by side through 1024 - 128 - C, added to the logits.
    - Loss: cross-entropy and 1e-5 times the L1 norm of the weights of everything but the encoder and the last layer.

    Parameters
    ----------
    n_volumes : int
        T, volumes of each series that are read; at least 14.
    encoder_classifier : bool
        Whether the encoder classifier is there: 13.2 of 13.3 million parameters at V = 200.
    l1_weight : float
        Weight of the L1 norm.
    gain : float, optional
        Gain of the Xavier-normal draw of attention and graph network: 2, or 0.25 with ``released=True``.
    released : bool
        Leave the encoder classifier as it was drawn, as the published optimiser does, and draw with the published gain.

    Notes
    -----
    Deviations from the paper or its code, and what we chose:

    - Upstream is written for 116 ROIs and 160 volumes in one window. Other sizes of the same layers are ours; the
      comparison of Kan 2022 does not say how it adapted them and did not tune the model.
    - ``released=True``: the encoder classifier is missing from the published optimiser's list, so it stays random
      and still adds to the logits and to the L1 norm. The default trains it.
    - Attention weight (i, j), of query i for key j, is the edge from i to j, as in the published code: j receives
      messages from the nodes that attend to it.
    - Training gives a random window of T volumes of each scan, evaluation the first one, each ROI standardised
      within it, so that series of different lengths can be read; upstream standardises whole series of one length.
    - Pooling scores go through tanh and Set2Set asks twice, as in the published code. Its unused modules (an
      attention MLP, five more Set2Set, a batch norm, a classifier) are not made.
    - Everything but the encoder is drawn Xavier-normal. The published gain of 0.25 extinguishes the signal: six gated
      convolutions and three poolings, which multiply nodes by small scores, leave differences between subjects of
      1e-8, and the graph network starts with the same answer for all subjects. The default is a gain of 2, found by
      looking at that spread on random series (above 0.1 in the logits, of five gains tried); classifier and last
      layer take 1. The encoder is orthogonal with gain sqrt(2) in both.
    - Even so it stayed near chance in short informal runs on 300 simulated scans, for reasons not established. Kan
      2022 prints an AUROC of 0.55 for it on ABIDE.
    - Published training: Adam 5e-4, batch 32, plateau schedule, early stop; all of it is the recipe's to set. The
      L1 norm is added once per batch, so it weighs less against a cross-entropy summed over the batch.

    References
    ----------
    Mahmood U, Fu Z, Calhoun VD, Plis S (2021). A deep learning model for data-driven discovery of functional
    connectivity. Algorithms 14(3):75.
    """

    needs_series: ClassVar = True
    small: ClassVar = {"n_volumes": 32}
    per_roi: ClassVar = {r"classifier\.0\.weight": {1: "vk"}}

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        n_volumes: int = 100,
        encoder_classifier: bool = True,
        l1_weight: float = 1e-5,
        gain: float | None = None,
        released: bool = False,
    ) -> None:
        super().__init__()
        self.n_rois, self.n_volumes, self.l1_weight = n_rois, n_volumes, l1_weight
        self.encoder = DeepConvEncoder(n_volumes, 64)
        self.key, self.value, self.query = (nn.Linear(64, WIDTH) for _ in range(3))
        self.attention = nn.MultiheadAttention(WIDTH, 1, batch_first=True)
        self.graph = GatedGraphNetwork()
        self.head = nn.Linear(32, n_classes)
        self.classifier: nn.Module | None = None
        if encoder_classifier:
            self.classifier = nn.Sequential(
                nn.Linear(64 * n_rois, 1024), nn.ReLU(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, n_classes)
            )
        gain = gain if gain is not None else (0.25 if released else 2.0)
        for part in (self.key, self.value, self.query, self.attention, self.graph):
            draw_weights(part, gain, whole=released)
        draw_weights(self.head, min(gain, 1.0))  # inputs of these two are of ordinary size
        draw_weights(self.classifier, min(gain, 1.0))
        if released and self.classifier is not None:
            self.classifier.requires_grad_(False)

    def _weights(self) -> list[Tensor]:
        """Return what the L1 norm is taken of: weights, not biases, of all but encoder and last layer."""
        parts = (self.key, self.value, self.query, self.attention, self.graph, self.classifier)
        return [
            weight
            for part in parts
            if part is not None
            for name, weight in part.named_parameters()
            if "bias" not in name.rpartition(".")[2]
        ]

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for series (B, T, V); see :meth:`bnt.nn.Network.forward`.

        Connectomes are not used. The attention returned, (B, 1, V, V), is the learned graph.
        """
        check_connectomes(x, self.n_rois)
        encoded = self.encoder(check_series(series, x.shape[0], self.n_volumes, self.n_rois))  # (B, V, 64)
        z, edges = self.attention(self.query(encoded), self.key(encoded), self.value(encoded))  # (B, V, 24), (B, V, V)
        logits = self.head(self.graph(z, edges.mT))
        if self.classifier is not None:
            logits = logits + self.classifier(encoded.flatten(1))
        loss = None
        if target is not None and self.l1_weight:
            loss = self.l1_weight * torch.stack([weight.abs().sum() for weight in self._weights()]).sum()
        return Output(logits, loss, (edges[:, None],) if explain else ())
