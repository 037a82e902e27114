"""Cross-shaped filters over a connectome's edges (Kawahara 2017), as matrix products."""

from __future__ import annotations

from torch import Tensor, nn


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

    def forward(self, a: Tensor) -> Tensor:
        """Map (B, V, c, V) to (B, V, o, V)."""
        rows = self.row(a.flatten(2))  # (B, V, o)
        columns = self.column.weight @ a.flatten(1, 2) + self.column.bias[:, None]  # (B, o, V)
        return rows[..., None] + columns[:, None]


class EdgeToNode(nn.Module):
    """A node's value from the edges of its row: (B, V, c, V) to (B, V)."""

    def __init__(self, n_nodes: int, channels_in: int) -> None:
        super().__init__()
        self.row = nn.Linear(channels_in * n_nodes, 1)

    def forward(self, a: Tensor) -> Tensor:
        """Map (B, V, c, V) to (B, V)."""
        return self.row(a.flatten(2)).squeeze(-1)
