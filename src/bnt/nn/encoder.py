"""The Transformer encoder: L post-norm layers."""

from __future__ import annotations

from torch import Tensor, nn

from bnt.nn.attention import MultiHeadAttention
from bnt.nn.dropout import dropout
from bnt.nn.feedforward import feed_forward


class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, each with dropout, residual and LayerNorm after it.

    Names, shapes and initial draws are those of :class:`torch.nn.TransformerEncoderLayer`.

    Parameters
    ----------
    width : int
        D, the length of a node's embedding.
    n_heads : int
        Heads of the attention.
    ffn : int
        Hidden units of the feed-forward network.
    p : float
        Dropout of attention weights, hidden units and both residual branches.
    """

    def __init__(self, width: int, n_heads: int = 4, ffn: int = 1024, p: float = 0.1) -> None:
        super().__init__()
        self.p = p
        self.self_attn = MultiHeadAttention(width, n_heads, p)
        self.linear1 = nn.Linear(width, ffn)
        self.linear2 = nn.Linear(ffn, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the embeddings (B, V, D) and, if asked to explain, the attention (B, M, V, V)."""
        mixed, weights = self.self_attn(z, explain, bias, factor)
        z = self.norm1(z + dropout(mixed, self.p, self.training))
        one, two = self.linear1, self.linear2
        fed = feed_forward(z, one.weight, one.bias, two.weight, two.bias, self.p, self.training)
        return self.norm2(z + dropout(fed, self.p, self.training)), weights


class Encoder(nn.Module):
    """L layers, one after the other.

    Parameters
    ----------
    width, n_layers, n_heads, ffn, p
        L, and see :class:`EncoderLayer`.
    attention_only : bool
        Layers of attention without biases and nothing else, as the paper's equation 1 is printed; ``ffn`` is unused.
    """

    def __init__(
        self,
        width: int,
        n_layers: int = 2,
        n_heads: int = 4,
        ffn: int = 1024,
        p: float = 0.1,
        attention_only: bool = False,
    ) -> None:
        super().__init__()

        def layer() -> nn.Module:
            if attention_only:
                return MultiHeadAttention(width, n_heads, p, bias=False)
            return EncoderLayer(width, n_heads, ffn, p)

        self.layers = nn.ModuleList(layer() for _ in range(n_layers))

    def forward(
        self, z: Tensor, explain: bool = False, bias: Tensor | None = None, factor: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return Z^L (B, V, D) and the attention of each layer, an empty tuple unless asked to explain."""
        attention = []
        for layer in self.layers:
            z, weights = layer(z, explain, bias, factor)
            attention.append(weights)
        return z, tuple(attention) if explain else ()
