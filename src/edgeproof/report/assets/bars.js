// Shares of fallen nodes; a value is [label, nodes that were right before, nodes that fell].
function bars(host, values, x) {
  if (!values.length) {
    host.replaceChildren(html("p", {}, "Not known."));
    return;
  }
  const { root, toX, toY } = frame(host, {
    x, y: "share that fell", rangeX: [-0.5, values.length - 0.5], rangeY: [0, 1], height: 220,
    ticksX: values.map(([label], k) => [k, label]), format: (value) => Math.round(100 * value) + " %",
  });
  const wide = Math.min(46, (toX(1) - toX(0)) * 0.7);
  const points = values.map(([label, right, fell], k) => {
    const share = right ? fell / right : 0, at = [toX(k), toY(share)];
    return point(`${x} ${label}: ${fell} of ${right} fell, ${percent(share)}`, 0, k,
      svg("rect", { class: "hit", x: at[0] - wide / 2, width: wide, y: toY(1), height: toY(0) - toY(1) }),
      svg("rect", { class: "share", x: at[0] - wide / 2, width: wide, y: at[1], height: Math.max(0, toY(0) - at[1]) }),
      svg("text", { class: "value", x: at[0], y: at[1] - 5, "text-anchor": "middle" }, String(fell)));
  });
  root.append(...points.map((one) => one.node));
  host.replaceChildren(root);
  reveal(host, points);
}
