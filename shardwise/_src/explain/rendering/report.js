(() => {
const all = (q, of = document) => [...of.querySelectorAll(q)];
const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent;
for (const table of all("table.sorted")) all("thead th", table).forEach((th, i) => {
  if (!th.textContent) return;
  const button = document.createElement("button");
  button.type = "button";
  button.append(...th.childNodes);
  th.append(button);
  button.addEventListener("click", () => {
    const number = th.dataset.kind === "number";
    const now = th.getAttribute("aria-sort");
    const down = now ? now === "ascending" : number;
    all("thead th", table).forEach(other => other.removeAttribute("aria-sort"));
    th.setAttribute("aria-sort", down ? "descending" : "ascending");
    const body = table.tBodies[0], rows = [...body.rows].filter(row => !row.dataset.rest);
    rows.sort((a, b) => {
      const [x, y] = [value(a, i), value(b, i)];
      const order = number ? x - y : x.localeCompare(y, undefined, {numeric: true});
      return down ? -order : order;
    });
    const rest = all("tr[data-rest]", body);
    body.append(...rows, ...rest);
  });
});
const named = all("[data-at]");
let pinned = null;
const mark = of => named.forEach(e => {
  const same = of && e.dataset.at === of.dataset.at;
  const both = same && of.dataset.op && e.dataset.op;
  const beside = e !== of && e.tagName === "TR" && e.parentNode === of?.parentNode;
  const strong = same && !beside && (!both || e.dataset.op === of.dataset.op);
  e.classList.toggle("strong", Boolean(strong));
  e.classList.toggle("marked", Boolean(same) && !strong);
});
const show = from => all(".pane").filter(pane => !pane.contains(from)).forEach(pane => {
  const line = pane.querySelector("li.strong") || pane.querySelector("li.marked");
  if (line) pane.scrollTop = line.offsetTop - pane.clientHeight / 3;
});
const found = event => event.target.closest && event.target.closest("[data-at]");
document.addEventListener("mouseover", event => mark(found(event) || pinned));
document.addEventListener("focusin", event => { if (found(event)) mark(found(event)); });
document.addEventListener("click", event => {
  const of = found(event);
  if (!of) return;
  if (event.target.closest("a")) event.preventDefault();
  else if (String(getSelection())) return;
  pinned = of === pinned ? null : of;
  mark(pinned);
  if (!pinned) return;
  show(of);
  const panes = document.querySelector(".panes");
  if (!panes.contains(of)) panes.scrollIntoView({block: "nearest", behavior: "smooth"});
});
})();
