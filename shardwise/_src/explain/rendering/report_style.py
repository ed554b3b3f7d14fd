"""CSS and script of saved report pages: nothing is loaded from elsewhere."""

from __future__ import annotations

STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1e23;--soft:#5a6270;--line:#d8dce2;
--band:#f4f5f7;--mark:#fdf3c4;--strong:#ffdf70;--link:#1f5fbf}
@media (prefers-color-scheme:dark){:root{--paper:#15171b;--ink:#e3e5e9;--soft:#9ba3af;
--line:#343941;--band:#1d2026;--mark:#38331a;--strong:#6a5a18;--link:#8ab4f8}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1500px;padding:20px clamp(12px,3vw,36px) 60px;background:var(--paper);
color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:22px;margin:0;overflow-wrap:anywhere}
h2{font-size:16px;margin:34px 0 8px}h3{font-size:13px;margin:0;font-weight:600}
p{margin:4px 0}.soft{color:var(--soft)}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
code,pre,.code,.pane ol{font:12px/1.5 ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{text-align:left;font-size:12px;font-weight:600;color:var(--soft);padding:4px 16px 4px 0;
white-space:nowrap}
td{padding:7px 16px 7px 0;border-top:1px solid var(--line);vertical-align:top}
td{white-space:nowrap}td.all{white-space:normal}td.n,th.n{text-align:right}td.all{width:100%}
th:last-child,td:last-child{padding-right:0}
tfoot td{color:var(--soft);font-weight:600}
th button{all:unset;cursor:pointer}th button:hover{color:var(--ink)}
th button:focus-visible{outline:2px solid var(--link)}
th button::after{content:" ↕";opacity:.45}th[aria-sort] button::after{opacity:1}
th[aria-sort=ascending] button::after{content:" ↑"}
th[aria-sort=descending] button::after{content:" ↓"}
tbody tr[data-at]{cursor:pointer}tbody tr[data-at]:hover{background:var(--band)}
.code{overflow-wrap:anywhere}.nowrap{white-space:nowrap}.why{overflow-wrap:anywhere}
.bars{display:grid;grid-template-columns:max-content max-content minmax(60px,520px);gap:3px 14px;
align-items:center;max-width:820px}.bars b,.bars span:nth-child(3n+1){font-weight:400}
.bars .n{text-align:right}.bars .most{font-weight:700!important}
td .track{width:110px;margin-top:7px}
.track{height:10px;background:var(--band);border-radius:2px;overflow:hidden}
.track i{display:block;height:100%;border-radius:2px}
.panes{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:14px}
.pane{border:1px solid var(--line);border-radius:6px;overflow:auto;max-height:70vh;
position:relative}
.pane header{position:sticky;top:0;left:0;background:var(--band);padding:5px 10px;
border-bottom:1px solid var(--line);z-index:1}
.pane ol{list-style:none;margin:0;padding:6px 0;width:max-content;min-width:100%}
.pane h3{position:sticky;left:0;padding:8px 10px 2px;overflow-wrap:anywhere}
.pane li{padding:0 10px;white-space:pre;min-height:1.5em}
.pane li[data-at]{cursor:pointer}
.pane li .no{display:inline-block;width:4.5em;padding-right:1em;text-align:right;
color:var(--soft)}
.pane li .at{color:var(--soft);padding-left:2em}
li.near{opacity:.6}li.marked,tr.marked{background:var(--mark)}
tbody tr.marked:hover{background:var(--mark)}
li.strong,tr.strong,tbody tr.strong:hover{background:var(--strong)}
details{border:1px solid var(--line);border-radius:6px;margin-top:34px}
summary{padding:8px 12px;cursor:pointer;font-weight:600}
details pre{margin:0;padding:8px 12px;overflow:auto;max-height:80vh;
border-top:1px solid var(--line)}
@media (max-width:760px){
.panes{grid-template-columns:minmax(0,1fr)}.pane{max-height:60vh}
table.fold,table.fold tbody,table.fold thead,table.fold tfoot{display:block}
table.fold tr{display:grid;grid-template-columns:2.6fr 1.3fr 1fr 1.7fr 1.3fr;gap:0 6px;
border-top:1px solid var(--line);padding:7px 0;font-size:13px}
table.fold th{padding:0}th:not([aria-sort]) button::after{display:none}
table.fold td{border:0;padding:0;min-width:0;white-space:normal;overflow-wrap:anywhere}
table.fold td.all,table.fold th.all{grid-column:1/-1;padding-top:3px}
table.buffers tr{grid-template-columns:1.3fr 1.6fr 1.6fr}
table.fold td .track{width:100%}
}
"""

SCRIPT = """
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
"""
