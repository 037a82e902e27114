"""DGM, the differentiable graph module: a graph of sampled neighbours, learned by reward."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from bnt.errors import BadInput
from bnt.nn._network import Network, Output, check_choice, check_connectomes

# -- graph convolution ---------------------------------------------------------------------------------


def symmetric_normalised(adjacency: Tensor) -> Tensor:
    """Return D^-1/2 (A + loops) D^-1/2 of non-negative weights (B, N, N).

    Row i holds the edges into node i and D their sum. Nodes without a self-loop get one of weight 1.
    """
    diagonal = adjacency.diagonal(dim1=-2, dim2=-1)
    looped = adjacency + torch.diag_embed((diagonal == 0).to(adjacency.dtype))
    scale = looped.sum(-1).rsqrt()  # (B, N)
    return looped * scale[:, :, None] * scale[:, None, :]


class GraphConv(nn.Module):
    """GCN layer (Kipf & Welling 2017): ``A^ Z W + b`` with a normalised adjacency A^ made by the caller.

    Parameters
    ----------
    in_features, out_features : int
        Lengths of a node's embedding.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, z: Tensor, normalised: Tensor) -> Tensor:
        """Return new embeddings (B, N, out) from (B, N, in) and (B, N, N)."""
        return normalised @ (z @ self.weight) + self.bias


# -- dDGM: sampled neighbours --------------------------------------------------------------------------


class Neighbours(NamedTuple):
    """A sampled graph.

    Attributes
    ----------
    nodes : Tensor of int, (B, N, k)
        The neighbours of each node.
    log_p : Tensor, (B, N, k)
        What the rewards are multiplied to: unnormalised log-probabilities, differentiable.
    """

    nodes: Tensor
    log_p: Tensor

    def adjacency(self) -> Tensor:
        """Return the graph as 0 and 1, (B, N, N); row i marks the neighbours of node i."""
        b, n, _ = self.nodes.shape
        return self.log_p.new_zeros(b, n, n).scatter_(2, self.nodes, 1.0)


def gumbel(shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Draw standard Gumbel noise on the CPU."""
    return -torch.log(-torch.log(torch.rand(shape, generator=generator).clamp(1e-8, 1 - 1e-7)))


def sample_neighbours(
    z: Tensor, temperature: Tensor, k: int, noise: Tensor | None = None, released: bool = False
) -> Neighbours:
    """Sample k neighbours of each node without replacement, likelier the nearer (Gumbel top-k).

    With ``l_ij = -|z_i - z_j|^2 exp(clamp(t, -5, 5))``, the k largest ``l_ij + g_ij`` are taken, g standard Gumbel
    noise: that draws without replacement from softmax(l_i). A node is its own nearest neighbour.

    Parameters
    ----------
    z : Tensor, (B, N, E)
        Embeddings that distances are measured in.
    temperature : Tensor, scalar
        t.
    k : int
        Number of neighbours.
    noise : Tensor, (B, N, N) or (N, N), optional
        g; without it the k nearest are taken.
    released : bool
        Subtract the noise, and leave it in the log-probabilities, as the published dense code does.
    """
    scale = temperature.clamp(-5, 5).exp()
    with torch.no_grad():
        centred = z - z.mean(1, keepdim=True)  # less cancellation in the expansion of the square
        norms = centred.square().sum(-1)
        distances = (norms[:, :, None] + norms[:, None, :] - 2 * centred @ centred.mT).clamp_min(0)
        score = -distances * scale
        if noise is not None:
            score = score - noise if released else score + noise
        index = score.topk(k, dim=-1).indices  # (B, N, k)
    b, n, e = z.shape
    near = z.gather(1, index.flatten(1)[..., None].expand(-1, -1, e)).view(b, n, k, e)
    log_p = -(near - z[:, :, None]).square().sum(-1) * scale
    if released and noise is not None:
        log_p = log_p - noise.expand(b, n, n).gather(2, index)
    return Neighbours(index, log_p)


# -- the model -----------------------------------------------------------------------------------------

EMBEDDINGS = ("gcn", "mlp")
POOLINGS = ("mean", "concat")
SEED = 20230201  # of the graphs drawn in evaluation


class DGM(Network):
    """A graph of k sampled neighbours per node, learned by reward, under three graph convolutions.

    - Profiles to 32 numbers per node (Linear, LeakyReLU 0.1).
    - dDGM: e_i, 4 numbers per node, from a graph convolution (or an MLP); l_ij = -|e_i - e_j|^2 exp(t); k neighbours
      drawn without replacement by Gumbel top-k. No gradient of the task passes here.
    - Three graph convolutions with ReLU on the drawn graph, 32 - 32 - 16 - 8; then 8 - 8 - C.
    - Reward: (mean accuracy - correct) mean exp(l) over the drawn edges trains t and the embedding: edges of
      subjects who were classified right become likelier. The mean accuracy starts at 0.5 and moves by 0.05 of the
      way each step.

    Parameters
    ----------
    k : int
        Neighbours of a node, itself among them.
    embedding : {"gcn", "mlp"}
        What places nodes in the space that distances are measured in.
    readout : {"mean", "concat"}
        From 8 numbers per node to the graph.
    n_samples : int
        Graphs drawn in evaluation, over which probabilities are averaged; 0 takes the nearest neighbours once.
    reward_weight : float
        Weight of the reward loss.
    released : bool
        The published noise.

    Notes
    -----
    DGM classifies the nodes of one graph that train and test share. Kan 2022 compares with it on graphs and does
    not say how it was adapted, so all of this is ours:

    - Nodes are ROIs, their features connection profiles. Each subject has its own sampled graph.
    - The embedding's convolution runs over absolute values of the given matrix.
    - Nodes are averaged before the head (or put side by side, ``readout="concat"``).
    - A subject's reward goes to all its nodes. The mean accuracy is one running number, where the original has one
      per node. With soft labels (mixup) a prediction is as correct as its class has share; for regression
      exp(-squared error).
    - In evaluation the ten graphs come from a fixed seed and the same noise for every subject: a prediction depends
      neither on the others of the batch nor on the run.

    Other deviations:

    - ``released=True``: the published dense code subtracts the Gumbel noise, which does not sample in proportion to
      exp(l), and its log-probabilities contain the noise. The default adds it and leaves it out, as the paper and
      the published KeOps version do.
    - The original takes binary cross-entropy on one-hot labels; here the task's loss is the loop's.
    - Only Euclidean distances, with t starting at 4 and clamped to [-5, 5].
    - Parameters of the embedding see the reward only, so under Adam its weight hardly matters.

    References
    ----------
    Kazi A, Cosmo L, Ahmadi SA, Navab N, Bronstein MM (2023). Differentiable graph module (DGM) for graph convolutional
    networks. IEEE Transactions on Pattern Analysis and Machine Intelligence 45(2).
    """

    per_roi: ClassVar = {r"reduce\.0\.weight": {1: "v"}}
    mean_reward: Tensor

    def __init__(
        self,
        n_rois: int,
        n_classes: int = 2,
        *,
        k: int = 5,
        embedding: str = "gcn",
        readout: str = "mean",
        n_samples: int = 10,
        reward_weight: float = 1.0,
        released: bool = False,
    ) -> None:
        super().__init__()
        if not 1 <= k <= n_rois:
            raise BadInput(f"k is {k}; a node of {n_rois} has 1 to {n_rois} neighbours, itself among them.")
        check_choice("embedding", embedding, EMBEDDINGS)
        check_choice("readout", readout, POOLINGS)
        if n_samples < 0:
            raise BadInput(
                f"n_samples is {n_samples}; give the number of graphs to draw, or 0 for the nearest neighbours."
            )
        self.n_rois, self.n_classes, self.k, self.readout = n_rois, n_classes, k, readout
        self.n_samples, self.reward_weight, self.released = n_samples, reward_weight, released
        self.reduce = nn.Sequential(nn.Linear(n_rois, 32), nn.LeakyReLU(0.1))
        self.embed: nn.Module = GraphConv(32, 4)
        if embedding == "mlp":
            self.embed = nn.Sequential(nn.Linear(32, 16), nn.LeakyReLU(0.1), nn.Linear(16, 4))
        self.temperature = nn.Parameter(torch.tensor(4.0))
        self.convolutions = nn.ModuleList([GraphConv(32, 32), GraphConv(32, 16), GraphConv(16, 8)])
        size = 8 if readout == "mean" else 8 * n_rois
        self.head = nn.Sequential(nn.Linear(size, 8), nn.LeakyReLU(0.1), nn.Linear(8, n_classes))
        self.register_buffer("mean_reward", torch.tensor(0.5))

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`.

        With a target, training moves the mean reward. The attention returned, (B, 1, V, V), is how often j was drawn as
        a neighbour of i.
        """
        check_connectomes(x, self.n_rois)
        z = self.reduce(x)  # (B, V, 32)
        place = self._place(z.detach(), x)  # (B, V, 4)
        answers, rewards, graphs = [], [], []
        for noise in self._noises(place):
            drawn = sample_neighbours(place, self.temperature, self.k, noise, self.released)
            adjacency = drawn.adjacency()
            answers.append(self._read(z, adjacency))
            if target is not None:
                rewards.append(self._reward_loss(answers[-1], target, drawn))
            if explain:
                graphs.append(adjacency)
        loss = self.reward_weight * torch.stack(rewards).mean() if rewards else None
        return Output(self._averaged(answers), loss, (torch.stack(graphs).mean(0)[:, None],) if explain else ())

    def _place(self, z: Tensor, x: Tensor) -> Tensor:
        if isinstance(self.embed, GraphConv):
            weights = x.abs()
            weights = weights - torch.diag_embed(weights.diagonal(dim1=-2, dim2=-1))
            return self.embed(z, symmetric_normalised(weights))
        return self.embed(z)

    def _noises(self, place: Tensor) -> list[Tensor | None]:
        """Return the noise of each graph to draw: fresh in training, always the same in evaluation."""
        b, v, _ = place.shape
        if self.training:
            return [gumbel((b, v, v)).to(place)]
        if self.n_samples == 0:
            return [None]
        generator = torch.Generator().manual_seed(SEED)
        return [gumbel((v, v), generator).to(place) for _ in range(self.n_samples)]

    def _read(self, z: Tensor, adjacency: Tensor) -> Tensor:
        normalised = symmetric_normalised(adjacency)
        for convolution in self.convolutions:
            z = torch.relu(convolution(z, normalised))
        return self.head(z.mean(1) if self.readout == "mean" else z.flatten(1))

    def _averaged(self, answers: list[Tensor]) -> Tensor:
        if len(answers) == 1:
            return answers[0]
        stacked = torch.stack(answers)  # (S, B, C)
        if self.n_classes == 1:
            return stacked.mean(0)
        return stacked.log_softmax(-1).logsumexp(0) - torch.tensor(float(len(answers))).log()

    def _reward_loss(self, logits: Tensor, target: Tensor, drawn: Neighbours) -> Tensor:
        with torch.no_grad():
            if self.n_classes == 1:
                reward = torch.exp(-(logits - target).square()).squeeze(1)
            else:
                reward = target.gather(1, logits.argmax(1, keepdim=True)).squeeze(1)  # (B,)
            advantage = self.mean_reward - reward
            if self.training:
                self.mean_reward.lerp_(reward.mean().to(self.mean_reward), 0.05)
        return (advantage * drawn.log_p.exp().mean((1, 2))).mean()
