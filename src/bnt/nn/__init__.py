"""Building blocks: attention, encoder, node features, readouts. Nothing here knows a cohort or a model by name."""

from bnt.nn._kernels import dropout
from bnt.nn._ocread import (
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
from bnt.nn._output import Output, Pooled
from bnt.nn._readouts import READOUTS, create_readout, list_readouts, padded_batch, readout_options
from bnt.nn._transformer import (
    NODE_FEATURES,
    Encoder,
    EncoderLayer,
    GraphTransformer,
    Head,
    MultiHeadAttention,
    NodeFeatures,
    leading_eigenvectors,
)

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
