// Lines with error bars. A point of a series is [x, y, low, high].
function lines(host, { series, x, y, rangeX, rangeY, ticksX, format, marks, under, say }) {
  const { root, toX, toY, bottom, height } = frame(host, { x, y, rangeX, rangeY, ticksX, format });
  if (under) {
    const most = Math.max(...under), wide = toX(2 / under.length) - toX(0);
    under.forEach((share, k) => {
      const tall = (share / most) * (height - bottom - 12) * 0.9;
      root.append(svg("rect", { class: "under", x: toX((2 * k) / under.length), width: wide, y: height - bottom - tall, height: tall }));
    });
  }
  const points = [];
  series.forEach(({ name, slot, points: values }, row) => {
    const group = svg("g", { class: slotClass(slot) + (marks ? "" : " quiet") });
    const path = values.map(([a, b]) => `${toX(a).toFixed(1)} ${toY(b).toFixed(1)}`).join("L");
    if (path) group.append(svg("path", { class: "line " + dashClass(slot), d: "M" + path }));
    values.forEach(([a, b, low, high], column) => {
      const at = [toX(a), toY(b)];
      if (high > low) {
        const [foot, head] = [toY(low), toY(high)];
        group.append(svg("path", { class: "bar", d: `M${at[0]} ${foot}V${head}M${at[0] - 4} ${foot}h8M${at[0] - 4} ${head}h8` }));
      }
      const here = `translate(${at[0]} ${at[1]})`;
      const one = point(say(name, [a, b, low, high]), row, column,
        svg("circle", { class: "hit", cx: at[0], cy: at[1], r: 10 }),
        svg("path", { class: "mark", d: SHAPES[slot % 7], transform: here }));
      group.append(one.node);
      points.push(one);
    });
    root.append(group);
  });
  host.replaceChildren(legend(series), root);
  reveal(host, points);
}

// Accuracy over the budget; a menu chooses the attack.
function curves(host, { series, menu }) {
  const select = document.getElementById(menu);
  const draw = () => {
    const shown = series.map((one) => ({ ...one, points: one.points[select.value] || [] }));
    const budgets = [...new Set(series.flatMap((one) => Object.values(one.points).flat().map(([a]) => a)))].sort((a, b) => a - b);
    chosen(host, `Attack: ${select.value}`);
    lines(host, {
      series: shown, x: "budget ε", y: "accuracy", marks: true, format: (value) => Math.round(100 * value) + " %",
      rangeX: [0, Math.max(...budgets) * 1.03 || 1], rangeY: [0, 1], ticksX: budgets.map((one) => [one, plain(one)]),
      say: (name, [a, b, low, high]) => `${name}, ${a ? "ε = " + plain(a) : "clean"}: ${percent(b)}` +
        (high > low ? ` (${percent(low)} to ${percent(high)})` : ""),
    });
  };
  drawn(host, draw);
  select.addEventListener("change", draw);
}

// Filters: coefficients by steps, responses by frequencies.
function filterLines(host, { series, x, y, marks, under }) {
  const all = series.flatMap((one) => one.points);
  const last = Math.max(...all.map(([a]) => a)), values = all.map(([, b]) => b);
  const rangeX = marks ? [-0.2, last + 0.2] : [0, 2];
  const ticksX = marks ? [...Array(last + 1).keys()].map((k) => [k, String(k)]) : ticks(0, 2, 8).map((one) => [one, plain(one)]);
  drawn(host, () => lines(host, {
    series, x, y, marks, under, rangeX, ticksX, rangeY: [Math.min(0, ...values) * 1.05, Math.max(0, ...values) * 1.05 || 1],
    format: plain, say: (name, [a, b]) => `${name}, ${x} ${plain(a)}: ${b.toFixed(3)}`,
  }));
}
