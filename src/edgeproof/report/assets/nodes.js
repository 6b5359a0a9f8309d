// Which nodes fell: menus choose model, attack and budget.
function nodes({ runs }) {
  const [model, attack, budget] = ["model", "attack", "budget"].map((name) => document.getElementById("nodes-" + name));
  const places = ["degree", "margin", "class"].map((name) => [name, document.getElementById("nodes-by-" + name)]);
  const titles = { degree: "edges at the node", margin: "margin before the attack, in quarters", class: "class" };
  const options = (menu, values) => {
    const before = menu.value;
    menu.replaceChildren(...[...new Set(values)].map((value) => html("option", { value }, value)));
    if (values.includes(before)) menu.value = before;
  };
  const view = () => runs[model.value].views.find((one) => one.attack === attack.value && String(one.epsilon) === budget.value);
  const draw = () => {
    const found = view(), what = `${runs[model.value].name}, ${found.attack}, ε = ${found.epsilon}`;
    document.getElementById("nodes-says").textContent = `${what}: ${found.says}`;
    for (const [name, host] of places) {
      bars(host, found[name], titles[name]);
      chosen(host, what);
    }
    const more = found.left_out ? `; ${found.left_out} more are left out` : "";
    const head = ["node", "class", "edges", "changes at it", "margin before", "margin after"];
    const list = html("details", {}, html("summary", {}, `The ${found.fallen.length + found.left_out} nodes that fell`),
      makeTable(`${what}: fallen nodes, the surest first${more}`, head, found.fallen));
    const old = document.querySelector("#nodes-list details");
    list.open = old !== null && old.open;
    document.getElementById("nodes-list").replaceChildren(list);
  };
  const choose = () => {
    const views = runs[model.value].views;
    options(attack, views.map((one) => one.attack));
    options(budget, views.filter((one) => one.attack === attack.value).map((one) => String(one.epsilon)));
    draw();
  };
  model.replaceChildren(...runs.map(({ name }, value) => html("option", { value }, name)));
  choose();
  budget.value = budget.options[budget.options.length - 1].value;
  for (const menu of [model, attack]) menu.addEventListener("change", choose);
  budget.addEventListener("change", draw);
  drawn(places[0][1], draw);
}
