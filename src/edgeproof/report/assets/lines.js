// Line chart with error bars. A point of a series is [x, y, low, high].
function lineChart(host, { series, x, y, rangeX, rangeY, ticksX, format, marks, background, label }) {
  const { root, toX, toY, bottom, height } = frame(host, { x, y, rangeX, rangeY, ticksX, format });
  if (background) {
    const maximum = Math.max(...background), binWidth = toX(2 / background.length) - toX(0);
    background.forEach((density, k) => {
      const binHeight = (density / maximum) * (height - bottom - 12) * 0.9;
      const at = { x: toX((2 * k) / background.length), y: height - bottom - binHeight };
      root.append(svg("rect", { class: "background", ...at, width: binWidth, height: binHeight }));
    });
  }
  const points = [];
  series.forEach(({ name, slot, points: values }, row) => {
    const group = svg("g", { class: slotClass(slot) + (marks ? "" : " unmarked") });
    const path = values.map(([a, b]) => `${toX(a).toFixed(1)} ${toY(b).toFixed(1)}`).join("L");
    if (path) group.append(svg("path", { class: "line " + dashClass(slot), d: "M" + path }));
    values.forEach(([a, b, low, high], column) => {
      const at = [toX(a), toY(b)];
      if (high > low) {
        const [foot, head] = [toY(low), toY(high)];
        group.append(svg("path", { class: "bar", d: `M${at[0]} ${foot}V${head}M${at[0] - 4} ${foot}h8M${at[0] - 4} ${head}h8` }));
      }
      const transform = `translate(${at[0]} ${at[1]})`;
      const marker = point(label(name, [a, b, low, high]), row, column,
        svg("circle", { class: "hit", cx: at[0], cy: at[1], r: 10 }),
        svg("path", { class: "mark", d: SHAPES[slot % 7], transform }));
      group.append(marker.node);
      points.push(marker);
    });
    root.append(group);
  });
  host.replaceChildren(legend(series), root);
  addTooltips(host, points);
}

// Accuracy by budget, with a menu of attacks.
function curves(host, { series, menu }) {
  const select = document.getElementById(menu);
  const draw = () => {
    const selected = series.map((line) => ({ ...line, points: line.points[select.value] || [] }));
    const allPoints = series.flatMap(({ points }) => Object.values(points).flat());
    const budgets = [...new Set(allPoints.map(([a]) => a))].sort((a, b) => a - b);
    showSelection(host, `Attack: ${select.value}`);
    lineChart(host, {
      series: selected, x: "budget ε", y: "accuracy", marks: true, format: (value) => Math.round(100 * value) + " %",
      rangeX: [0, Math.max(...budgets) * 1.03 || 1], rangeY: [0, 1], ticksX: budgets.map((budget) => [budget, plain(budget)]),
      label: (name, [a, b, low, high]) => `${name}, ${a ? "ε = " + plain(a) : "clean"}: ${percent(b)}` +
        (high > low ? ` (${percent(low)} to ${percent(high)})` : ""),
    });
  };
  redrawOnResize(host, draw);
  select.addEventListener("change", draw);
}

// Filters: coefficients by step, or responses by frequency.
function filterChart(host, { series, x, y, marks, background }) {
  const allPoints = series.flatMap(({ points }) => points);
  const last = Math.max(...allPoints.map(([a]) => a)), values = allPoints.map(([, b]) => b);
  const rangeX = marks ? [-0.2, last + 0.2] : [0, 2];
  const ticksX = marks ? [...Array(last + 1).keys()].map((k) => [k, String(k)]) : ticks(0, 2, 8).map((tick) => [tick, plain(tick)]);
  redrawOnResize(host, () => lineChart(host, {
    series, x, y, marks, background, rangeX, ticksX, format: plain,
    rangeY: [Math.min(0, ...values) * 1.05, Math.max(0, ...values) * 1.05 || 1],
    label: (name, [a, b]) => `${name}, ${x} ${plain(a)}: ${b.toFixed(3)}`,
  }));
}
