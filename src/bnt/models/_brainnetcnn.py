"""BrainNetCNN: cross-shaped filters over the edges of a connectome, as matrix products."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bnt.nn._kernels import dropout as drop
from bnt.nn._network import Network, Output, check_connectomes, check_probability

SLOPE = 0.33

# -- filters over edges --------------------------------------------------------------------------------


class EdgeToEdge(nn.Module):
    """An edge's new value from all edges that share an end with it.

    With input A of c channels, output channel o of the edge (i, j) is

        sum_cj' r[o,c,j'] A[c,i,j'] + sum_ci' s[o,c,i'] A[c,i',j] + two biases.

    Feature maps are laid out (B, i, c, j): the first sum contracts the last two axes and the second the first two,
    so both are plain matrix products without a copy; their sum is broadcast, where convolutions followed
    by concatenation would make V copies.

    Parameters
    ----------
    n_nodes : int
        V.
    channels_in, channels_out : int
        c and o.
    """

    def __init__(self, n_nodes: int, channels_in: int, channels_out: int) -> None:
        super().__init__()
        # Drawn as the convolutions of kernel (1, V) and (V, 1) are: the fan-in is c V in both.
        self.row = nn.Linear(channels_in * n_nodes, channels_out)  # weight over (c, j)
        self.column = nn.Linear(n_nodes * channels_in, channels_out)  # weight over (i, c)

    def parts(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Map (B, V, c, V) to the two sums of i and of j, (B, V, o) and (B, o, V)."""
        return self.row(a.flatten(2)), self.column.weight @ a.flatten(1, 2) + self.column.bias[:, None]

    def forward(self, a: Tensor) -> Tensor:
        """Map (B, V, c, V) to (B, V, o, V)."""
        rows, columns = self.parts(a)
        return rows[..., None] + columns[:, None]


class EdgeToNode(nn.Module):
    """A node's value from the rectified edges of its row: (B, V, c, V) to (B, V)."""

    def __init__(self, n_nodes: int, channels_in: int) -> None:
        super().__init__()
        self.row = nn.Linear(channels_in * n_nodes, 1)

    def forward(self, a: Tensor) -> Tensor:
        """Map (B, V, c, V) to (B, V)."""
        return self.row(F.leaky_relu(a, SLOPE).flatten(2)).squeeze(-1)

    def of_parts(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the same for edges ``rows[i, c] + columns[c, j]`` without making these V x c x V numbers.

        With weights w, sum_j w[c,j] max(rows[i,c] + columns[c,j], 0) is a sum over the largest columns[c,j]. Such sums
        are made once per channel, and each node looks its own up.
        """
        sizes, order = columns.sort(2, descending=True)  # (B, c, V)
        weights = self.row.weight.view(columns.shape[1:]).expand_as(order).gather(2, order)
        rows = rows.mT.contiguous()  # (B, c, V)
        many = torch.searchsorted(-sizes.detach(), rows.detach())  # how many columns exceed -rows
        of_weights, of_products = (F.pad(one.cumsum(2), (1, 0)) for one in (weights, weights * sizes))  # (B, c, 1 + V)
        positive = rows * of_weights.gather(2, many) + of_products.gather(2, many)
        every = rows * of_weights[..., -1:] + of_products[..., -1:]
        return (SLOPE * every + (1 - SLOPE) * positive).sum(1) + self.row.bias


# -- the model -----------------------------------------------------------------------------------------


class BrainNetCNN(Network):
    """Edge-to-edge, edge-to-node and node-to-graph filters, then three dense layers.

    The layers of Kawahara et al., with the sizes that the Brain Network Transformer's code has:

    - E2E, 1 - 32 - 64 channels: ``B[o,i,j] = sum_ck r[o,c,k] A[c,i,k] + s[o,c,k] A[c,k,j]``, an edge from the edges of
      its row and its column.
    - E2N, 64 channels to one: ``a[i] = sum_ck r[c,k] A[c,i,k]``, a node from the edges of its row.
    - N2G: 256 numbers of the graph, ``g[n] = sum_i w[n,i] a[i]``.
    - 256 - 128 - 30 - C, dropout before each; a bias in every layer, LeakyReLU of slope 0.33 after each but the last.

    Parameters
    ----------
    dropout : float
        Of the dense layers' inputs. The paper searched 0.3, 0.5 and 0.7.
    released : bool
        As the released code behaves: the logits go through LeakyReLU, which weakens negative ones threefold.
    noise : bool
        Dropout stays on at evaluation, as in the released code, so that two predictions differ.

    Notes
    -----
    - Sizes and constants are those of a public PyTorch version (nicofarr/brainnetcnnVis_pytorch), to which the paper's
      "implemented by ourselves" is equal number for number. Initial values are PyTorch's.
    - There are 4,480 V + 37,277 parameters for two classes: 0.93 million at V = 200 as the paper prints, and 1.65
      million at V = 360, where it repeats the 0.93.
    - There is no attention to explain.

    References
    ----------
    Kawahara J, Brown CJ, Miller SP, Booth BG, Chau V, Grunau RE, Zwicker JG, Hamarneh G (2017). BrainNetCNN:
    convolutional neural networks for brain networks; towards predicting neurodevelopment. NeuroImage 146.
    """

    per_roi: ClassVar = {r"row\.weight": {1: "kv"}, r"column\.weight": {1: "vk"}, r"n2g\.weight": {1: "v"}}

    def __init__(
        self, n_rois: int, n_classes: int = 2, *, dropout: float = 0.5, released: bool = False, noise: bool = False
    ) -> None:
        super().__init__()
        check_probability("dropout", dropout)
        self.n_rois, self.p, self.released, self.noise = n_rois, dropout, released, noise
        self.e2e1 = EdgeToEdge(n_rois, 1, 32)
        self.e2e2 = EdgeToEdge(n_rois, 32, 64)
        self.e2n = EdgeToNode(n_rois, 64)
        self.n2g = nn.Linear(n_rois, 256)
        self.dense1 = nn.Linear(256, 128)
        self.dense2 = nn.Linear(128, 30)
        self.dense3 = nn.Linear(30, n_classes)

    def forward(
        self, x: Tensor, series: Tensor | None = None, target: Tensor | None = None, explain: bool = False
    ) -> Output:
        """Answer for connectomes (B, V, V); see :meth:`bnt.nn.Network.forward`."""
        check_connectomes(x, self.n_rois)
        at_once = x.device.type != "cpu" or torch.compiler.is_exporting()  # one at a time would fix their number
        nodes = self._nodes(x) if at_once else self._by_graph(x)  # (B, V)
        g = self._dropped(self._rectified(self.n2g(nodes)))  # (B, 256)
        g = self._dropped(self._rectified(self.dense1(g)))
        g = self._dropped(self._rectified(self.dense2(g)))
        logits = self.dense3(g)  # (B, C)
        return Output(self._rectified(logits) if self.released else logits)

    def _first(self, x: Tensor) -> Tensor:
        return self._rectified(self.e2e1(x[:, :, None, :]))  # (B, V, 32, V)

    def _nodes(self, x: Tensor) -> Tensor:
        """Return the nodes (B, V) of connectomes (B, V, V): the layers over edges."""
        return self._rectified(self.e2n(self.e2e2(self._first(x))))

    def _by_graph(self, x: Tensor) -> Tensor:
        """Do the same in half of the time: the edges of one graph fit the cache, and the last ones are not made."""
        parts = [self.e2e2.parts(self._first(one)) for one in x.split(1)]
        return self._rectified(self.e2n.of_parts(*(torch.cat(part) for part in zip(*parts))))

    @staticmethod
    def _rectified(a: Tensor) -> Tensor:
        return F.leaky_relu_(a, SLOPE)  # in place: the result is all that backward needs

    def _dropped(self, g: Tensor) -> Tensor:
        return drop(g, self.p, self.training or self.noise)
