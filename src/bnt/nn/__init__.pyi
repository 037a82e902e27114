__all__ = [
    "Network",
    "OCRead",
    "Output",
    "Pooled",
    "READOUTS",
    "create_readout",
    "draw_centres",
    "edge_subgraphs",
    "kernels",
    "list_readouts",
    "node_subgraphs",
    "padded_batch",
    "readout_options",
]

from ._kernels import kernels
from ._network import Network, Output
from ._ocread import OCRead, Pooled, draw_centres, edge_subgraphs, node_subgraphs
from ._readouts import READOUTS, create_readout, list_readouts, padded_batch, readout_options
