__all__ = [
    "ASSIGNMENTS",
    "CENTRES",
    "NODE_FEATURES",
    "READOUTS",
    "Encoder",
    "EncoderLayer",
    "GraphTransformer",
    "Head",
    "MultiHeadAttention",
    "NodeFeatures",
    "OCRead",
    "Output",
    "Pooled",
    "clustering_loss",
    "create_readout",
    "draw_centres",
    "dropout",
    "edge_subgraphs",
    "gram_schmidt",
    "leading_eigenvectors",
    "list_readouts",
    "membership",
    "node_subgraphs",
    "padded_batch",
    "readout_options",
]

from ._kernels import dropout
from ._ocread import (
    ASSIGNMENTS,
    CENTRES,
    OCRead,
    clustering_loss,
    draw_centres,
    edge_subgraphs,
    gram_schmidt,
    membership,
    node_subgraphs,
)
from ._output import Output, Pooled
from ._readouts import READOUTS, create_readout, list_readouts, padded_batch, readout_options
from ._transformer import (
    NODE_FEATURES,
    Encoder,
    EncoderLayer,
    GraphTransformer,
    Head,
    MultiHeadAttention,
    NodeFeatures,
    leading_eigenvectors,
)
