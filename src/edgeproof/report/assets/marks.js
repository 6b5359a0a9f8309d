// Markers, dashes and legends of models; tooltips of single values.
const SHAPES = [
  "M0-5a5 5 0 1 0 .01 0z", "M-4.4-4.4h8.8v8.8h-8.8z", "M0-5.6 5.4 4.2h-10.8z", "M0-6 6 0 0 6-6 0z",
  "M0 5.6 5.4-4.2h-10.8z", "M-2-5.5h4v3.5h3.5v4h-3.5v3.5h-4v-3.5h-3.5v-4h3.5z", "M-5-3-3-5 0-2 3-5 5-3 2 0 5 3 3 5 0 2-3 5-5 3-2 0z",
];
const slotClass = (slot) => "s" + (slot % 7);
// The first 28 models have different pairs of colour and dash.
const dashClass = (slot) => "d" + ((slot + 2 * Math.floor(slot / 7)) % 4);

function legend(series) {
  const items = series.map(({ name, slot }) => html("li", {},
    svg("svg", { viewBox: "0 0 34 12", class: slotClass(slot), "aria-hidden": "true" },
      svg("path", { class: "line " + dashClass(slot), d: "M0 6H34" }),
      svg("path", { class: "mark", d: SHAPES[slot % 7], transform: "translate(17 6)" })), name));
  return html("ul", { class: "legend" }, ...items);
}

// A value with a tooltip, reachable by pointer and keyboard. Rows are series, columns are values of a series.
function point(label, row, column, ...children) {
  const node = svg("g", { class: "point", role: "img", "aria-label": label, tabindex: -1 }, ...children);
  return { node, label, row, column };
}

// Add tooltips and arrow-key navigation. A chart is one tab stop (roving tabindex).
function addTooltips(host, points) {
  const tip = html("div", { class: "tip", "aria-hidden": "true" });
  tip.hidden = true;
  host.append(tip);
  const show = ({ node, label }) => {
    tip.textContent = label;
    tip.hidden = false;
    const mark = node.querySelector(".mark, .fraction").getBoundingClientRect(), chart = host.getBoundingClientRect();
    const left = mark.left + mark.width / 2 - chart.left - tip.offsetWidth / 2;
    tip.style.left = Math.max(0, Math.min(left, chart.width - tip.offsetWidth)) + "px";
    tip.style.top = Math.max(0, mark.top - chart.top - tip.offsetHeight - 8) + "px";
  };
  const hide = () => { tip.hidden = true; };
  const moveFocus = (from, row, column) => {
    const candidates = points.filter((candidate) => candidate.row === row);
    if (!candidates.length) return;
    const next = candidates.reduce((a, b) => (Math.abs(b.column - column) < Math.abs(a.column - column) ? b : a));
    from.node.setAttribute("tabindex", -1);
    next.node.setAttribute("tabindex", 0);
    next.node.focus();
  };
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  for (const current of points) {
    current.node.addEventListener("pointerenter", () => show(current));
    current.node.addEventListener("pointerleave", hide);
    current.node.addEventListener("focus", () => show(current));
    current.node.addEventListener("blur", hide);
    current.node.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const step = steps[event.key];
      if (!step) return;
      event.preventDefault();
      moveFocus(current, current.row + step[0], current.column + step[1]);
    });
  }
  if (points.length) points[0].node.setAttribute("tabindex", 0);
}
