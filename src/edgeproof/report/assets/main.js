const charts = JSON.parse(document.getElementById("charts").textContent);
for (const controls of document.querySelectorAll(".controls")) controls.hidden = false;
for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
for (const box of document.querySelectorAll(".filterable")) makeFilterable(box);
for (const [id, chart] of Object.entries(charts)) {
  if (chart.type === "nodes") nodeCharts(chart);
  else (chart.type === "curves" ? curves : filterChart)(document.getElementById(id), chart);
}
// Print all details.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((details) => { details.open = true; }));
