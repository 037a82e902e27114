"""Building blocks: attention, encoder, node features, readouts. Nothing here knows a cohort or a model by name."""

from bnt.nn.attention import MultiHeadAttention
from bnt.nn.centres import CENTRES, draw_centres, gram_schmidt
from bnt.nn.dropout import dropout
from bnt.nn.encoder import Encoder, EncoderLayer
from bnt.nn.features import NODE_FEATURES, NodeFeatures, leading_eigenvectors
from bnt.nn.graph_transformer import GraphTransformer, Head
from bnt.nn.ocread import ASSIGNMENTS, OCRead, clustering_loss
from bnt.nn.output import Output
from bnt.nn.plain_readouts import padded_batch
from bnt.nn.pooled import Pooled
from bnt.nn.readouts import READOUTS, create_readout, list_readouts, readout_options
from bnt.nn.subgraphs import edge_subgraphs, membership, node_subgraphs

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
