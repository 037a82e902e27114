"""OCRead outside the brain: protein-like graphs, pooled whole, by node and by edge.

The paper (section 3.4) expects OCRead to help wherever nodes come in groups: proteins in families, genes in
pathways. Here are small graphs made of families: members of a family are linked often and have similar
features, strangers rarely. The task is to tell whether the third family is large or small, from graphs of
different sizes. Nothing is downloaded; it runs in seconds.

Run it:  python docs/examples/ocread_protein_graph.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bnt.nn import OCRead, edge_subgraphs, node_subgraphs, padded_batch

N_FEATURES, N_FAMILIES = 12, 4


def protein_like_graph(label: int, families: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return node features (V, 12) and links (V, V); the third family has 2 to 6 members, or 7 to 11."""
    sizes = torch.randint(4, 9, (N_FAMILIES,), generator=generator)
    sizes[2] = torch.randint(2, 7, (1,), generator=generator) + 5 * label
    family = torch.repeat_interleave(torch.arange(N_FAMILIES), sizes)  # (V,)
    features = families[family] + 0.5 * torch.randn(len(family), N_FEATURES, generator=generator)
    chance = torch.where(family[:, None] == family, 0.6, 0.05)
    upper = torch.triu(torch.rand(chance.shape, generator=generator) < chance, 1)
    return features, (upper | upper.T).float()


class ProteinNet(nn.Module):
    """One step of message passing, OCRead, a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.convolve = nn.Linear(N_FEATURES, 16)
        self.readout = OCRead(width=16, n_clusters=N_FAMILIES)
        self.classify = nn.Linear(self.readout.out_features, 2)

    def embed(self, features: Tensor, links: Tensor) -> Tensor:
        """Return node embeddings (V, 16)."""
        near = (features + links @ features) / (1 + links.sum(1, keepdim=True))
        return torch.tanh(self.convolve(near))

    def forward(self, graphs: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Return logits (B, 2) for graphs of different sizes."""
        z, mask = padded_batch([self.embed(*graph) for graph in graphs])
        return self.classify(self.readout(z, mask).embedding)


def main(n_graphs: int = 200, epochs: int = 60) -> float:
    """Train on half of the graphs and return the accuracy on the other half."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    families = torch.randn(N_FAMILIES, N_FEATURES, generator=generator)
    labels = torch.arange(n_graphs) % 2
    graphs = [protein_like_graph(int(label), families, generator) for label in labels]
    half = n_graphs // 2

    net = ProteinNet()
    optimiser = torch.optim.Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)
    for _ in range(epochs):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(graphs[:half]), labels[:half]).backward()
        optimiser.step()
    with torch.no_grad():
        accuracy = float((net(graphs[half:]).argmax(1) == labels[half:]).float().mean())

        # The same readout at the level of nodes and of edges: one embedding for what surrounds each.
        features, links = graphs[0]
        z = net.embed(features, links)
        edges = links.triu().nonzero()
        by_node = net.readout.pool_subgraphs(z, node_subgraphs(links, hops=1))
        by_edge = net.readout.pool_subgraphs(z, edge_subgraphs(links, edges, hops=1))
    print(f"accuracy on {n_graphs - half} graphs not trained on: {accuracy:.2f}")
    print(f"subgraph embeddings: {tuple(by_node.shape)} by node, {tuple(by_edge.shape)} by edge")

    try:
        from bnt.nn.pyg import OCReadAggregation
    except ImportError:
        print("PyTorch Geometric is not installed: its Aggregation is not shown")
        return accuracy
    pool = OCReadAggregation(width=16, n_clusters=N_FAMILIES)
    pool.readout.load_state_dict(net.readout.state_dict())
    nodes = torch.cat([net.embed(*graph) for graph in graphs[:3]]).detach()
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor([len(graph[0]) for graph in graphs[:3]]))
    print(f"through PyTorch Geometric: {tuple(pool(nodes, owner).shape)}")
    return accuracy


if __name__ == "__main__":
    main()
