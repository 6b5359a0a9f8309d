const charts = JSON.parse(document.getElementById("charts").textContent);
for (const controls of document.querySelectorAll(".controls")) controls.hidden = false;
for (const table of document.querySelectorAll("table.sortable")) sortable(table);
for (const box of document.querySelectorAll(".thinned")) thinned(box);
for (const [id, chart] of Object.entries(charts)) {
  if (chart.type === "nodes") nodes(chart);
  else (chart.type === "curves" ? curves : filterLines)(document.getElementById(id), chart);
}
// Paper cannot be clicked.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((one) => { one.open = true; }));
