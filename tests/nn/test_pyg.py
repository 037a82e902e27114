"""OCRead in PyTorch Geometric, and the example that shows it."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import torch

import bnt

BRAIN = Path(__file__).parents[2] / "docs" / "examples" / "ocread_brain_subgraphs.py"
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "ocread_protein_graph.py"


def test_aggregation_pools_each_graph_as_ocread_does_alone():
    pytest.importorskip("torch_geometric")
    from bnt.nn.pyg import OCReadAggregation

    pool = OCReadAggregation(width=6, n_clusters=3, dec_weight=1.0)
    graphs = [torch.randn(size, 6) for size in (4, 9, 2)]
    index = torch.repeat_interleave(torch.arange(3), torch.tensor([4, 9, 2]))
    out = pool(torch.cat(graphs), index)
    alone = torch.cat([pool.readout(graph[None]).embedding for graph in graphs])
    torch.testing.assert_close(out, alone)
    assert pool.loss is not None
    assert pool.assignments is not None
    assert pool.assignments.shape == (3, 9, 3)


def test_aggregation_resolves_inside_pytorch_geometric():
    pytest.importorskip("torch_geometric")
    from torch_geometric.nn.aggr import Aggregation

    from bnt.nn.pyg import OCReadAggregation

    assert isinstance(OCReadAggregation(width=6, n_clusters=3), Aggregation)


def test_pytorch_geometric_is_imported_by_its_adapter_alone_and_the_adapter_by_nobody():
    package = Path(bnt.__file__).parent
    importing = re.compile(r"(?m)^\s*(?:from|import) +(?:torch_geometric|bnt\.nn\.pyg\b|bnt\.nn import .*\bpyg\b)")
    found = [file for file in package.rglob("*.py*") if file.suffix != ".pyc" and importing.search(file.read_text())]
    assert found == [package / "nn" / "pyg.py"]


def opened(example: Path):
    spec = importlib.util.spec_from_file_location(example.stem, example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_protein_example_learns():
    assert opened(EXAMPLE).main(n_graphs=120, epochs=40) > 0.75  # chance is 0.5


def test_subgraphs_of_a_brain_tell_the_network_of_an_roi():
    accuracy, chance = opened(BRAIN).main()
    assert chance < 0.4
    assert accuracy > 0.7
