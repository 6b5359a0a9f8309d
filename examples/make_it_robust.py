"""Train a model adversarially and compare it with a regularly trained one.

Run: python examples/make_it_robust.py
"""

import edgeproof as ep


def main() -> None:
    data = ep.datasets.load("csbm")  # or your own torch_geometric Data
    split = ep.splits.inductive(data, seed=0, train_per_class=200, val_per_class=100, test_share=0.2)
    graph, nodes = split.test.data, split.test.nodes
    adversary = ep.attacks.LRBCD(steps=5, block_size=10_000)
    runs = []
    for name, attack in (("regular", None), ("adversarial", adversary)):
        model = ep.models.build("GPRGNN", data.num_features, ep.num_classes(data), seed=0)
        threat = {} if attack is None else {"attack": attack, "epsilon": 0.2, "local": 0.5}
        # Forty epochs keep the example fast; omit max_epochs for full training.
        history = ep.train(model, split, **threat, max_epochs=40, seed=0, progress=False)
        scores = ep.evaluate(
            model, graph, nodes, [0.1, 0.25], [ep.attacks.LRBCD(steps=40, block_size=50_000)], local=0.5
        )
        print(f"{name}: clean {scores.clean_accuracy:.1%}, worst at 0.25 {scores.accuracy(0.25):.1%}")
        run = ep.report.Run.of(
            name, model, graph, nodes, evaluation=scores, history=history, split=split, dataset="cSBM"
        )
        runs.append(run)
    ep.report.write(runs, "robust.html")
    print("robust.html compares both models")


if __name__ == "__main__":
    main()
