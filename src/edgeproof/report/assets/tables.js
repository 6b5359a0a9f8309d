// Tables sorted by a click or Enter on a heading, and filtered by menus.
const sortKey = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent);

function makeSortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = html("button", { type: "button" }, ...heading.childNodes);
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((first, second) => {
        const [a, b] = [first, second].map((row) => sortKey(row.cells[column]));
        const order = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
        return ascending ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// The k-th menu of a box filters by the k-th column of its table.
function makeFilterable(box) {
  const menus = [...box.querySelectorAll("select")], rows = [...box.querySelector("tbody").rows];
  const filter = () => {
    for (const row of rows) row.hidden = menus.some((menu, k) => menu.value && row.cells[k].textContent !== menu.value);
  };
  for (const menu of menus) menu.addEventListener("change", filter);
}

function makeTable(caption, head, rows) {
  const cells = (row) => row.map((value, k) => {
    const isKnown = value !== null;
    const attributes = k ? { class: "number", "data-value": isKnown ? value : -1 } : { scope: "row" };
    return html(k ? "td" : "th", attributes, isKnown ? String(value) : "–");
  });
  const table = html("table", {},
    html("caption", {}, html("span", {}, caption)),
    html("thead", {}, html("tr", {}, ...head.map((title, k) => html("th", { scope: "col", class: k ? "number" : "" }, title)))),
    html("tbody", {}, ...rows.map((row) => html("tr", {}, ...cells(row)))));
  makeSortable(table);
  return html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption }, table);
}
