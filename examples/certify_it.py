"""Certify a model: find predictions that no perturbation of a given number of edges can change.

Run: python examples/certify_it.py
"""

import edgeproof as ep


def main() -> None:
    data = ep.datasets.load("csbm")  # or your own torch_geometric Data
    split = ep.splits.inductive(data, seed=0, train_per_class=200, val_per_class=100, test_share=0.2)
    model = ep.models.build("GPRGNN", data.num_features, ep.num_classes(data), seed=0)
    ep.train(model, split, max_epochs=200, seed=0, progress=False)

    graph, nodes = split.test.data, split.test.nodes
    smoothing = ep.certificates.SparseSmoothing(p_add=0.005, p_del=0.4)
    # 2,000 samples keep the example fast; 100,000 certify larger radii.
    certificate = smoothing.certify(model, graph, nodes, samples=2000, choosing_samples=200, progress=False)
    for added, deleted in ((0, 0), (0, 1), (0, 2), (1, 0)):
        print(f"certified against {added} added and {deleted} deleted: {certificate.accuracy(added, deleted):.1%}")
    certificate.save("certificate.safetensors")
    run = ep.report.Run.of("GPRGNN", model, graph, nodes, certificate=certificate, dataset="cSBM")
    ep.report.write([run], "certified.html")
    print("certified.html shows the certified accuracy as a heatmap")


if __name__ == "__main__":
    main()
