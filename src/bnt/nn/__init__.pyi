__all__ = [
    "Network",
    "OCRead",
    "Output",
    "Pooled",
    "create_readout",
    "edge_subgraphs",
    "kernels",
    "list_readouts",
    "node_subgraphs",
    "padded_batch",
]

from ._kernels import kernels
from ._network import Network, Output
from ._ocread import OCRead, Pooled, edge_subgraphs, node_subgraphs
from ._readouts import create_readout, list_readouts, padded_batch
