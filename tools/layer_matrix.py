"""Measure what works with each layer and model of PyG, and write ``docs/supported-layers.md``.

    python tools/layer_matrix.py measure             # all rows, about five minutes
    python tools/layer_matrix.py measure GCNConv     # some rows; the others stay as they are stored
    python tools/layer_matrix.py tiers               # only the tiers of all rows, in seconds; keeps other measurements
    python tools/layer_matrix.py render              # the page from the stored measurements

``tests/models/test_layer_matrix.py`` compares the tier of every row, and the page, with the stored measurements.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric import nn as pyg

import edgeproof as ep
from edgeproof.evaluation.result import describe_environment
from edgeproof.models import expected_seconds, tier_of

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "benchmarks" / "layer-matrix.json"
PAGE = ROOT / "docs" / "supported-layers.md"
FEATURES, HIDDEN, NODES = 21, 16, 300
DEGREES = torch.tensor([0, 10, 30, 40, 40, 30, 20, 10])


class Net(nn.Module):
    """Linear map, one layer of the matrix, linear map."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.first, self.layer, self.last = nn.Linear(FEATURES, HIDDEN), layer, nn.LazyLinear(2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.last(self.layer(self.first(x), edge_index).relu())
        return out


class WithInput(Net):
    """For layers that also get the input of the first layer."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x)
        out: Tensor = self.last(self.layer(h, h, edge_index).relu())
        return out


def _mlp(inputs: int = HIDDEN) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))


def _pna() -> nn.Module:
    return pyg.PNAConv(HIDDEN, HIDDEN, ["mean", "min", "max", "std"], ["identity", "amplification"], DEGREES)


C = HIDDEN
CONVOLUTIONS: dict[str, Callable[[], nn.Module]] = {
    "GCNConv": lambda: pyg.GCNConv(C, C),
    "GCNConv, improved": lambda: pyg.GCNConv(C, C, improved=True),
    "SAGEConv, mean": lambda: pyg.SAGEConv(C, C),
    "SAGEConv, sum": lambda: pyg.SAGEConv(C, C, aggr="sum"),
    "SAGEConv, max": lambda: pyg.SAGEConv(C, C, aggr="max"),
    "SAGEConv, std": lambda: pyg.SAGEConv(C, C, aggr="std"),
    "SAGEConv, softmax": lambda: pyg.SAGEConv(C, C, aggr="softmax"),
    "SAGEConv, median": lambda: pyg.SAGEConv(C, C, aggr="median"),
    "GINConv": lambda: pyg.GINConv(_mlp()),
    "GATConv": lambda: pyg.GATConv(C, C // 2, heads=2),
    "GATConv, no self-loops": lambda: pyg.GATConv(C, C, add_self_loops=False),
    "GATv2Conv": lambda: pyg.GATv2Conv(C, C // 2, heads=2),
    "TransformerConv": lambda: pyg.TransformerConv(C, C // 2, heads=2),
    "TAGConv": lambda: pyg.TAGConv(C, C),
    "SGConv": lambda: pyg.SGConv(C, C, K=2),
    "SSGConv": lambda: pyg.SSGConv(C, C, alpha=0.1, K=4),
    "APPNP": lambda: pyg.APPNP(K=10, alpha=0.1),
    "ChebConv": lambda: pyg.ChebConv(C, C, K=3),
    "ARMAConv": lambda: pyg.ARMAConv(C, C, num_stacks=2, num_layers=2),
    "GraphConv": lambda: pyg.GraphConv(C, C),
    "GraphConv, mean": lambda: pyg.GraphConv(C, C, aggr="mean"),
    "GraphConv, max": lambda: pyg.GraphConv(C, C, aggr="max"),
    "LEConv": lambda: pyg.LEConv(C, C),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(C, C),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(C, 2),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(C, C),
    "AGNNConv": lambda: pyg.AGNNConv(),
    "SuperGATConv": lambda: pyg.SuperGATConv(C, C // 2, heads=2),
    "EdgeConv": lambda: pyg.EdgeConv(_mlp(2 * C)),
    "FeaStConv": lambda: pyg.FeaStConv(C, C, heads=2),
    "FiLMConv": lambda: pyg.FiLMConv(C, C),
    "GENConv": lambda: pyg.GENConv(C, C, norm="layer"),
    "GeneralConv": lambda: pyg.GeneralConv(C, C, attention=True),
    "LGConv": lambda: pyg.LGConv(),
    "MixHopConv": lambda: pyg.MixHopConv(C, C),
    "PNAConv": _pna,
    "EGConv": lambda: pyg.EGConv(C, C, ["sum", "symnorm", "std"], num_heads=2),
    "DirGNNConv of SAGEConv": lambda: pyg.DirGNNConv(pyg.SAGEConv(C, C)),
    "AntiSymmetricConv": lambda: pyg.AntiSymmetricConv(C),
    "WLConvContinuous": lambda: pyg.WLConvContinuous(),
    "SimpleConv, mean": lambda: pyg.SimpleConv("mean"),
    "GPSConv of GCNConv": lambda: pyg.GPSConv(C, pyg.GCNConv(C, C), heads=2, norm=None),
    "MFConv": lambda: pyg.MFConv(C, C),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    "GCN2Conv": lambda: WithInput(pyg.GCN2Conv(C, 0.1, theta=0.5, layer=1)),
    "FAConv": lambda: WithInput(pyg.FAConv(C)),
    "GCN": lambda: pyg.models.GCN(FEATURES, C, 2, 2),
    "GraphSAGE": lambda: pyg.models.GraphSAGE(FEATURES, C, 2, 2),
    "GIN": lambda: pyg.models.GIN(FEATURES, C, 2, 2),
    "GAT": lambda: pyg.models.GAT(FEATURES, C, 2, 2, heads=2),
    "GAT, v2": lambda: pyg.models.GAT(FEATURES, C, 2, 2, heads=2, v2=True),
    "PNA": lambda: pyg.models.PNA(FEATURES, C, 2, 2, aggregators=["mean", "max"], scalers=["identity"], deg=DEGREES),
    "EdgeCNN": lambda: pyg.models.EdgeCNN(FEATURES, C, 2, 2),
    "LINKX": lambda: pyg.models.LINKX(NODES, FEATURES, C, 2, num_layers=2),
    "PMLP": lambda: pyg.models.PMLP(FEATURES, C, 2, num_layers=2),
    "SGFormer": lambda: pyg.models.SGFormer(FEATURES, C, 2),
    "Polynormer": lambda: pyg.models.Polynormer(FEATURES, C, 2),
    "DeepGCNLayer": lambda: Net(pyg.DeepGCNLayer(pyg.GCNConv(C, C), nn.LayerNorm(C), nn.ReLU())),
    "GroupAddRev": lambda: Net(pyg.GroupAddRev(pyg.GCNConv(C // 2, C // 2), num_groups=2)),
    "GraphUNet": lambda: pyg.models.GraphUNet(FEATURES, C, 2, depth=2),
    "MLP": lambda: GraphlessMLP(),
    "edgeproof GPS": lambda: ep.models.GPS(FEATURES, 2, hidden_channels=C, heads=2),
}
# Not in the matrix, because they do not map features and edges to logits of nodes.
OTHERS = """AttentiveFP, NeuralFingerprint, SchNet, DimeNet, ViSNet, GNNFF and GPSE (graphs or molecules), LightGCN, ARGA, GAE,
SignedGCN, LPFormer and GraphMixer (links), LabelPropagation, CorrectAndSmooth and MaskLabel (labels as inputs),
DeepGraphInfomax, Node2Vec, MetaPath2Vec and RECT_L (embeddings), TGN and RENet (events)"""


class GraphlessMLP(nn.Module):
    """PyG's MLP with an unused argument for edges."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = pyg.models.MLP([FEATURES, HIDDEN, 2])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.mlp(x)
        return out


def split() -> ep.splits.Split:
    """Return a small split; all its graphs have the same nodes, because LINKX has parameters per node."""
    data = ep.datasets.csbm("homophilous", num_nodes=NODES, p=0.03, q=0.01, seed=0)
    return ep.splits.transductive(data, seed=0, train_per_class=20, val_per_class=20)


def build(name: str, views: ep.splits.Split) -> nn.Module:
    """Return the model of a row, with all parameters initialized."""
    torch.manual_seed(0)
    model = MODELS[name]() if name in MODELS else Net(CONVOLUTIONS[name]())
    if isinstance(model, Net):
        # The first call initializes lazy layers.
        with torch.no_grad():
            model.eval()(views.test.data.x, views.test.data.edge_index)
    return model


def measure(name: str, views: ep.splits.Split) -> dict[str, Any]:
    """Return tier, times, and what ran: an attack, adversarial training and a certificate."""
    model, data, nodes = build(name, views), views.test.data, views.test.nodes
    tier = tier_of(model, data).tier
    seconds = list(expected_seconds(model, data).values())
    gradients = tier != "black_box"
    settings: dict[str, Any] = {"warmup_epochs": 0, "preset": "paper", "progress": False}
    ep.train(model, views, max_epochs=40, **settings)
    attack = ep.attacks.PRBCD(steps=10, fine_tune_steps=0, block_size=20_000) if gradients else ep.attacks.DICE()
    result = attack(model, data, nodes, ep.Budget.from_epsilon(data, nodes, 0.25))
    assert result.tier == tier
    adversary = ep.attacks.LRBCD(steps=2, block_size=2_000) if gradients else ep.attacks.DICE()
    history = ep.train(build(name, views), views, attack=adversary, epsilon=0.1, max_epochs=2, **settings)
    smoothing = ep.certificates.SparseSmoothing(p_add=0.01, p_del=0.5)
    certificate = smoothing.certify(model, data, nodes, samples=20, choosing_samples=10, progress=False)
    return {
        "tier": tier,
        "attack": type(attack).__name__,
        "clean_accuracy": result.clean_accuracy,
        "accuracy": result.accuracy,
        "training": f"{type(adversary).__name__}, {len(history.epochs)} epochs",
        "certificate": certificate.prediction.numel() == nodes.numel(),
        "prediction_seconds": seconds[0],
        "step_seconds": seconds[1] if gradients else None,
    }


def render(record: dict[str, Any]) -> str:
    """Return the page."""
    rows = record["rows"]
    tiers = [row["tier"] for row in rows.values()]
    counts = ", ".join(f"{tiers.count(tier)} `{tier}`" for tier in ("propagate", "autograd", "black_box"))
    environment = record["environment"]
    head = f"""# Which layers and models are supported?

Every module that returns logits can be attacked, trained, evaluated and certified. Its *tier* decides how fast, and by which
attacks:

| tier | what attacks use | when |
|---|---|---|
| `propagate` | gradients at any pair, from node quantities | all layers follow known rules |
| `autograd` | gradients with the pairs added to the graph as weighted edges | reductions over edges can be weighted |
| `black_box` | predictions | everything else |

`edgeproof check-model my_module:build --dataset citeseer` shows the tier of your model and of each of its layers. The table has
{len(rows)} rows: {counts}. Layers in other settings, your own `MessagePassing` layers, and layers without PyG are tested in the
same way when they are used, so a row is an example and not a condition.

## How edge weights are added

An edge of weight `w` counts `w` times in every reduction over edges: sums, means, counts (degrees, normalizations), softmax
(weights of attention), variances, products, and entries of matrices. For the maximum of messages, the weight is the
probability that the edge exists. At weights 0 and 1 this equals the model on the discrete graph; before every attack, this is
tested at random pairs and edges of your graph. The gradient at the first edge of a node without edges is 0 if the layer
divides by the square root of the degree.

## The matrix

Attack: accuracy before and after a short PR-BCD if the model has gradients, else DICE (epsilon 0.25, 40 epochs of training,
one seed: no ranking of the layers). Training: adversarial, with LR-BCD or DICE. Certificate: sparse smoothing. Times are of one
prediction, and of one attack step on all {record["pairs"]:,} pairs of a graph of {NODES} nodes, on one thread
({environment["device"]}). Tiers: `python tools/layer_matrix.py tiers`. Other columns, where they are not empty:
`python tools/layer_matrix.py measure`.

| layer or model | tier | attack | accuracy, % | training | certificate | prediction, ms | step, ms |
|---|---|---|---|---|---|---|---|
"""
    lines = [_line(name, row) for name, row in rows.items()]
    foot = f"""

Of `torch_geometric.nn.models`, these are not in the matrix, because they do not map features and edges to logits of nodes:
{OTHERS}.
Layers that need `edge_attr`, positions, node or edge types are not, either: flipped edges have no attributes.
"""
    return head + "\n".join(lines) + foot


def _line(name: str, row: dict[str, Any]) -> str:
    cells = [name, f"`{row['tier']}`"]
    if "attack" not in row:
        return f"| {' | '.join([*cells, *[''] * 6])} |"
    step = row["step_seconds"]
    cells += [
        row["attack"],
        f"{100 * row['clean_accuracy']:.0f} → {100 * row['accuracy']:.0f}",
        row["training"].partition(",")[0],
        "yes" if row["certificate"] else "no",
        f"{1000 * row['prediction_seconds']:.1f}",
        "–" if step is None else f"{1000 * step:.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure rows, or only their tiers, or render the page."""
    names, command = [*CONVOLUTIONS, *MODELS], sys.argv[1:2]
    if command in (["measure"], ["tiers"]):
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        views = split()
        rows = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"] if RESULTS.exists() else {}
        for name in sys.argv[2:] or names:
            tier = tier_of(build(name, views), views.test.data).tier
            known = rows.get(name, {})
            rows[name] = measure(name, views) if command == ["measure"] else {**known, "tier": tier}
            print(name, tier, flush=True)
        record = {
            "environment": describe_environment(),
            "pairs": NODES * (NODES - 1) // 2,
            "rows": {name: rows[name] for name in names if name in rows},
        }
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    elif command != ["render"]:
        raise SystemExit(__doc__)
    PAGE.write_text(render(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
