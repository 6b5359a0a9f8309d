// Elements, scales and axes. Text is inserted as text nodes only, never as markup.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
const svg = (name, attributes, ...children) => fill(document.createElementNS(SVG, name), attributes, children);
const html = (name, attributes, ...children) => fill(document.createElement(name), attributes, children);

function scale([low, high], [from, to]) {
  const factor = (to - from) / (high - low || 1);
  return (value) => from + (value - low) * factor;
}

// Round numbers between low and high, approximately `count` of them.
function ticks(low, high, count) {
  const minimum = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(minimum));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= minimum);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9; k++) values.push(k * step);
  return values;
}

const percent = (fraction) => (100 * fraction).toFixed(1) + " %";
const plain = (value) => String(Number(value.toPrecision(3)));

// An empty chart of the host's width, with its scales.
function frame(host, { x, y, rangeX, rangeY, ticksX, format, height = 280 }) {
  const width = Math.max(host.clientWidth, 240), left = 52, right = 14, top = 12, bottom = 44;
  const toX = scale(rangeX, [left, width - right]), toY = scale(rangeY, [height - bottom, top]);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group" });
  for (const value of ticks(...rangeY, 5)) {
    const at = toY(value);
    root.append(svg("line", { class: Math.abs(value) < 1e-12 ? "zero" : "grid", x1: left, x2: width - right, y1: at, y2: at }));
    root.append(svg("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, format(value)));
  }
  let last = -Infinity;
  for (const [value, label] of ticksX) {
    // Skip labels that would overlap.
    if (toX(value) - last < 7 * label.length + 6) continue;
    last = toX(value);
    root.append(svg("text", { x: last, y: height - bottom + 18, "text-anchor": "middle" }, label));
  }
  root.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, x));
  root.setAttribute("aria-label", `Chart: ${y} by ${x}. Arrow keys move between its values.`);
  return { root, toX, toY, width, height, bottom };
}

// Put the selection of the menus before the caption: menus are not printed.
function showSelection(host, text) {
  const caption = host.parentElement.querySelector("figcaption");
  const previous = caption.querySelector(".selection");
  if (previous) previous.remove();
  caption.prepend(html("strong", { class: "selection" }, text + ". "));
}

// Draw now, and again whenever the width of the host changes.
function redrawOnResize(host, draw) {
  let width = -1;
  const redraw = () => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    draw();
  };
  redraw();
  new ResizeObserver(redraw).observe(host);
}
