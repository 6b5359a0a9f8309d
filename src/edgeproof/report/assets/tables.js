// Tables that sort by a click, or by Enter, on a heading; and menus that thin them out.
const sortValue = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent);

function sortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = html("button", { type: "button" }, ...heading.childNodes);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const up = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((first, second) => {
        const [a, b] = [first, second].map((row) => sortValue(row.cells[column]));
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// The menus of a box choose by its table's first columns, in their order.
function thinned(box) {
  const menus = [...box.querySelectorAll("select")], rows = [...box.querySelector("tbody").rows];
  const thin = () => {
    for (const row of rows) row.hidden = menus.some((menu, k) => menu.value && row.cells[k].textContent !== menu.value);
  };
  for (const menu of menus) menu.addEventListener("change", thin);
}

function makeTable(caption, head, rows) {
  const cells = (row) => row.map((value, k) => {
    const known = value !== null;
    const attributes = k ? { class: "number", "data-value": known ? value : -1 } : { scope: "row" };
    return html(k ? "td" : "th", attributes, known ? String(value) : "–");
  });
  const table = html("table", {},
    html("caption", {}, html("span", {}, caption)),
    html("thead", {}, html("tr", {}, ...head.map((title, k) => html("th", { scope: "col", class: k ? "number" : "" }, title)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...cells(row)))));
  sortable(table);
  return html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption }, table);
}
