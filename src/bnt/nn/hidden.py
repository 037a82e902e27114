"""The MLP over the flattened graph that the released code has inside its readout, and the paper does not mention."""

from __future__ import annotations

from torch import Tensor, nn

from bnt.errors import BadInput

WIDTH = 32


class HiddenMLP(nn.Sequential):
    """V*D - 32 - 32 - V*D over all nodes at once, without a residual: 65 % of the released model's parameters.

    Parameters
    ----------
    n_nodes, width : int
        V and D of every graph.
    """

    def __init__(self, n_nodes: int, width: int) -> None:
        size = n_nodes * width
        super().__init__(
            nn.Linear(size, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, size)
        )
        self.n_nodes = n_nodes

    def forward(self, z: Tensor) -> Tensor:
        """Mix all nodes: (B, V, D) -> (B, V, D)."""
        if z.shape[1] != self.n_nodes:
            raise BadInput(f"hidden_mlp=True was made for graphs of {self.n_nodes} nodes, but {z.shape[1]} were given.")
        return super().forward(z.flatten(1)).view_as(z)
