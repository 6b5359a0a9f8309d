// Searchable, sortable tables from CSV files; see tools/site_tables.py. Works from file://, without a network.
"use strict";
(() => {
  const NUMBER = /^[+-]?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?/;
  const isMissing = (text) => text === "" || text === "-";
  const number = (text) => Number(text.match(NUMBER)[0].replaceAll(",", ""));
  const collator = new Intl.Collator("en", { numeric: true });

  function element(name, properties = {}, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // Missing values come last in both orders.
  function compare(first, second, isNumeric, sign) {
    if (isMissing(first) || isMissing(second)) return isMissing(first) - isMissing(second);
    return sign * (isNumeric ? number(first) - number(second) : collator.compare(first, second));
  }

  function toCsv(lines) {
    const quoted = (cell) => (/[",\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
    return lines.map((line) => line.map(quoted).join(",") + "\n").join("");
  }

  function build(place, name, [titles, ...lines]) {
    const isNumeric = titles.map((_, column) =>
      lines.every((line) => isMissing(line[column]) || /^[+-]?\d[\d,.e+-]*(?: ± \d[\d.]*)?$/i.test(line[column])));
    const search = element("input", { type: "search", placeholder: "All words must occur in a row" });
    const count = element("output");
    const download = element("button", { type: "button", textContent: "Download shown rows" });
    const heads = titles.map((title) => element("th", { scope: "col" },
      element("button", { type: "button", textContent: title })));
    const body = element("tbody");
    const rows = lines.map((line) => ({
      line,
      text: line.join(" ").toLowerCase(),
      row: element("tr", {}, ...line.map((cell) => element("td", { textContent: cell, className: cell.length < 20 ? "short" : "" }))),
    }));
    let shown = rows;

    function filter() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      shown = rows.filter(({ text }) => words.every((word) => text.includes(word)));
      body.replaceChildren(...shown.map(({ row }) => row));
      count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    }

    heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((first, second) => compare(first.line[column], second.line[column], isNumeric[column], sign));
      filter();
    }));
    search.addEventListener("input", filter);
    download.addEventListener("click", () => {
      const blob = new Blob([toCsv([titles, ...shown.map(({ line }) => line)])], { type: "text/csv" });
      const link = element("a", { href: URL.createObjectURL(blob), download: `${name}-selection.csv` });
      link.click();
      URL.revokeObjectURL(link.href);
    });
    // A search in the address applies to the first table of the page.
    if (place === document.querySelector("[data-table]")) {
      search.value = new URLSearchParams(location.search).get("q") ?? "";
    }
    const caption = place.querySelector("a").textContent;
    place.append(
      element("div", { className: "data-table-tools" }, element("label", {}, "Search ", search), count, download),
      element("div", { className: "data-table-scroll", tabIndex: 0, ariaLabel: caption, role: "region" },
        element("table", { className: "data-table-rows" },
          element("caption", { textContent: caption }), element("thead", {}, element("tr", {}, ...heads)), body)),
    );
    filter();
  }

  window.edgeproofTable = (name, lines) => build(document.querySelector(`[data-table="${name}"]`), name, lines);
})();
