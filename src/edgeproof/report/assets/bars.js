// Bar chart of the fraction of misclassified nodes. Values: [label, nodes correct before the attack, misclassified nodes].
function barChart(host, values, x) {
  if (!values.length) {
    host.replaceChildren(html("p", {}, "Unknown."));
    return;
  }
  const { root, toX, toY } = frame(host, {
    x, y: "fraction misclassified", rangeX: [-0.5, values.length - 0.5], rangeY: [0, 1], height: 220,
    ticksX: values.map(([label], k) => [k, label]), format: (value) => Math.round(100 * value) + " %",
  });
  const barWidth = Math.min(46, (toX(1) - toX(0)) * 0.7);
  const points = values.map(([label, correct, misclassified], k) => {
    const fraction = correct ? misclassified / correct : 0, at = [toX(k), toY(fraction)];
    return point(`${x} ${label}: ${misclassified} of ${correct} misclassified, ${percent(fraction)}`, 0, k,
      svg("rect", { class: "hit", x: at[0] - barWidth / 2, width: barWidth, y: toY(1), height: toY(0) - toY(1) }),
      svg("rect", { class: "fraction", x: at[0] - barWidth / 2, width: barWidth, y: at[1], height: Math.max(0, toY(0) - at[1]) }),
      svg("text", { class: "value", x: at[0], y: at[1] - 5, "text-anchor": "middle" }, String(misclassified)));
  });
  root.append(...points.map(({ node }) => node));
  host.replaceChildren(root);
  addTooltips(host, points);
}
