// Misclassified nodes, with menus of model, attack and budget.
function nodeCharts({ runs }) {
  const [model, attack, budget] = ["model", "attack", "budget"].map((name) => document.getElementById("nodes-" + name));
  const hosts = ["degree", "margin", "class"].map((name) => [name, document.getElementById("nodes-by-" + name)]);
  const titles = { degree: "degree", margin: "quartile of the clean margin", class: "class" };
  const setOptions = (menu, values) => {
    const previous = menu.value;
    menu.replaceChildren(...[...new Set(values)].map((value) => html("option", { value }, value)));
    if (values.includes(previous)) menu.value = previous;
  };
  const isSelected = (view) => view.attack === attack.value && String(view.epsilon) === budget.value;
  const draw = () => {
    const run = runs[model.value], view = run.views.find(isSelected);
    const selection = `${run.name}, ${view.attack}, ε = ${view.epsilon}`;
    document.getElementById("nodes-summary").textContent = `${selection}: ${view.summary}`;
    for (const [name, host] of hosts) {
      barChart(host, view[name], titles[name]);
      showSelection(host, selection);
    }
    const omitted = view.omitted ? `; ${view.omitted} more are omitted` : "";
    const head = ["node", "class", "degree", "edge flips", "clean margin", "margin under attack"];
    const list = html("details", {}, html("summary", {}, `${view.misclassified.length + view.omitted} misclassified nodes`),
      makeTable(`${selection}: misclassified nodes by clean margin, largest first${omitted}`, head, view.misclassified));
    const previous = document.querySelector("#nodes-list details");
    list.open = previous !== null && previous.open;
    document.getElementById("nodes-list").replaceChildren(list);
  };
  const update = () => {
    const views = runs[model.value].views;
    setOptions(attack, views.map((view) => view.attack));
    setOptions(budget, views.filter((view) => view.attack === attack.value).map(({ epsilon }) => String(epsilon)));
    draw();
  };
  model.replaceChildren(...runs.map(({ name }, value) => html("option", { value }, name)));
  update();
  budget.value = budget.options[budget.options.length - 1].value;
  for (const menu of [model, attack]) menu.addEventListener("change", update);
  budget.addEventListener("change", draw);
  redrawOnResize(hosts[0][1], draw);
}
