// Comfort only: filter, sort, copy as Markdown. Without this file every page says the same.
"use strict";

const squeeze = (text) => text.replace(/\s+/g, " ").trim();

function cellText(cell) {
  const p50 = cell.querySelector(".p50");
  const reason = cell.querySelector(".chip.line > summary");
  const why = cell.querySelector(".why");
  const said = [why, reason].filter(Boolean).map((n) => squeeze(n.textContent)).join(" ");
  if (!p50) return said || squeeze((cell.querySelector("a") || cell).textContent);
  const speedup = cell.querySelector(".speedup");
  const struck = p50.querySelector("s");
  const parts = [struck ? `~~${squeeze(struck.textContent)}~~` : squeeze(p50.textContent)];
  const interval = cell.querySelector(".interval");
  if (interval) parts.push(`[${squeeze(interval.textContent)}]`);
  if (speedup && !speedup.classList.contains("base")) {
    parts.push(squeeze([...speedup.childNodes].filter((n) => !n.classList?.contains("aside")).map((n) => n.textContent).join("")));
  }
  if (said) parts.push(said);
  for (const chip of cell.querySelectorAll(".chip:not([data-chip=reason]) > summary, .chip.flat")) parts.push(squeeze(chip.textContent));
  return parts.join(" · ");
}

function headText(cell) {
  return squeeze([...cell.childNodes].filter((n) => n.nodeName !== "BUTTON").map((n) => n.textContent).join(" "));
}

function markdown(table) {
  const escape = (text) => text.replace(/[\\|`*_<>[\]]/g, "\\$&");
  const line = (cells) => `| ${cells.join(" | ")} |`;
  const heads = [...table.tHead.rows[0].cells].map((c) => escape(headText(c)));
  const lines = [line(heads), line(heads.map(() => "---"))];
  for (const section of [...table.tBodies, ...(table.tFoot ? [table.tFoot] : [])]) {
    for (const row of section.rows) {
      if (!row.hidden && !row.classList.contains("note")) {
        lines.push(line([...row.cells].map((c) => escape(cellText(c)).replaceAll("\\~\\~", "~~"))));
      }
    }
  }
  return lines.join("\n") + "\n";
}

async function copy(text, said) {
  try {
    await navigator.clipboard.writeText(text);
    said.textContent = "Copied.";
  } catch {
    const area = document.createElement("textarea");
    area.className = "copied";
    area.readOnly = true;
    area.value = text;
    said.replaceChildren(area);
    area.select();
  }
}

function groups(body) {
  const found = [];
  for (const row of body.rows) {
    if (row.classList.contains("note") && found.length) found.at(-1).push(row);
    else found.push([row]);
  }
  return found;
}

// A row's cell in a column; one may span several.
function cellAt(row, index) {
  let end = 0;
  return [...row.cells].find((cell) => (end += cell.colSpan) > index);
}

function sortKey(row, index) {
  const cell = cellAt(row, index);
  const key = row.chosen?.keys[index] ?? cell.dataset.sort ?? squeeze(cell.textContent);
  // A date is compared as text, in which the year comes first.
  const number = /^\d{4}-\d\d-/.test(key) ? NaN : Number.parseFloat(key.replace(/[\u202f\s]/g, ""));
  return { missing: key === "" || key.startsWith("—"), number, text: key };
}

function compare(a, b) {
  if (a.missing || b.missing) return 0;
  if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return a.number - b.number;
  return a.text.localeCompare(b.text);
}

function sortable(table, show) {
  const body = table.tBodies[0];
  const original = groups(body);
  const heads = [...table.tHead.rows[0].cells].filter((head) => !("unsorted" in head.dataset));
  let again = show;
  const sorts = new Map(heads.map((head) => {
    const index = head.cellIndex;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "↕";
    button.setAttribute("aria-label", `sort by ${headText(head)}`);
    const name = head.querySelector(".delegate");
    if (name) name.after(button);
    else head.append(button);
    const sort = (next) => {
      again = next === "none" ? show : () => sort(next);
      for (const other of heads) {
        other.removeAttribute("aria-sort");
        other.querySelector("button").textContent = "↕";
      }
      let order = original;
      if (next !== "none") {
        head.setAttribute("aria-sort", next);
        button.textContent = next === "ascending" ? "↑" : "↓";
        const keyed = original.map((rows) => ({ rows, key: sortKey(rows[0], index) }));
        const sign = next === "ascending" ? 1 : -1;
        keyed.sort((a, b) => a.key.missing - b.key.missing || sign * compare(a.key, b.key));
        order = keyed.map((entry) => entry.rows);
      }
      body.append(...order.flat());
      show();
    };
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") || "none"];
      choose(table, "sort", next === "none" ? "" : `${index}-${next}`);
      sort(next);
    });
    return [index, sort];
  }));
  const recall = /^(\d+)-((?:a|de)scending)$/.exec(recalled(table, "sort"));
  if (recall) sorts.get(Number(recall[1]))?.(recall[2]);
  table.addEventListener("redrawn", () => again());
}

// As factor_text of the farm writes it: the factor with two digits, two decimals near 1.
function ratioText(ratio) {
  const factor = Math.max(ratio, 1 / ratio);
  const near = factor < 1.1 ? factor.toFixed(2) : factor.toPrecision(2);
  const text = factor < 99.5 ? near : String(Number(near));
  return ratio >= 1 || Number(text) === 1 ? `${text}×` : `${text}× slower`;
}

// The geometric mean over the rows that are shown: of the paired ratios, or of all where none is paired.
function showMean(table, cell) {
  const rows = groups(table.tBodies[0]).map((rows) => rows[0]).filter((row) => !row.hidden);
  const found = rows.map((row) => row.cells[cell.cellIndex].querySelector("[data-ratio]")).filter(Boolean);
  const paired = found.filter((one) => "paired" in one.dataset);
  const chosen = paired.length ? paired : found;
  const [mean, over] = [document.createElement("span"), document.createElement("span")];
  mean.className = chosen.length ? "p50" : "quiet";
  over.className = "detail";
  const logs = chosen.map((one) => Math.log(Number(one.dataset.ratio)));
  mean.textContent = chosen.length ? ratioText(Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length)) : "no ratio";
  if (chosen.length) over.textContent = `over ${chosen.length} of ${rows.length} models${paired.length ? "" : ", unpaired"}`;
  cell.replaceChildren(mean, " ", over);
}

// The page's main table keeps what is chosen in the address, so that a link shows the same rows in the same order.
const chosen = new Map(location.hash.slice(1).split("&").filter((part) => part.includes("=")).map((part) => {
  const [name, value] = part.split("=");
  return [name, decoded(value)];
}));

// What somebody typed into the address may be no encoding: it is taken as it stands.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function choose(table, name, value) {
  if (table.dataset.tools !== "list") keep(name, value);
}

function keep(name, value) {
  if (value) chosen.set(name, value);
  else chosen.delete(name);
  history.replaceState(null, "", `#${[...chosen].map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}`);
}

function recalled(table, name) {
  return table.dataset.tools === "list" ? "" : chosen.get(name) ?? "";
}

// A choice of one of the values that rows have in an attribute of this name, where there are several.
function selection(table, tools, name, apply) {
  const select = document.createElement("select");
  select.setAttribute("aria-label", `Only this ${name}`);
  const fill = (value) => {
    const values = new Set([...table.tBodies[0].rows].map((row) => row.dataset[name]).concat(select.value).filter(Boolean));
    select.replaceChildren(new Option(`every ${name}`, ""), ...[...values].sort().map((one) => new Option(one, one)));
    select.value = values.has(value) ? value : "";
    select.hidden = values.size < 2;
  };
  fill(recalled(table, name));
  select.addEventListener("change", () => {
    choose(table, name, select.value);
    apply();
  });
  table.addEventListener("redrawn", () => fill(select.value));
  if (table.dataset.choices || !select.hidden) tools.append(select);
  return (row) => !select.value || row.dataset[name] === select.value;
}

// Adds a filter, and returns what shows the rows that fit, in their order. Of a long table a page shows the first ones,
// until it is asked for all: a browser lays out hundreds of rows while somebody types, not thousands.
function filterable(table, tools, said) {
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Filter rows";
  input.setAttribute("aria-label", "Filter rows; every word must occur");
  input.value = recalled(table, "filter");
  tools.append(input);
  const body = table.tBodies[0];
  const read = () => new Map(groups(body).map((rows) => [rows[0], rows.map((row) => row.chosen?.text ?? row.textContent).join(" ").toLowerCase()]));
  let texts = read();
  table.addEventListener("redrawn", () => (texts = read()));
  const later = [...body.querySelectorAll("tr.later")];
  let most = later.length ? texts.size - later.length : Infinity;
  const rest = document.createElement("button");
  rest.type = "button";
  rest.hidden = true;
  rest.textContent = "Show all";
  rest.addEventListener("click", () => {
    most = Infinity;
    apply();
  });
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    for (const rows of groups(body)) {
      const fits = words.every((word) => texts.get(rows[0]).includes(word)) && selections.every((chosen) => chosen(rows[0]));
      fitting += fits;
      const hidden = !fits || fitting > most;
      // To set what is so already would have the browser style the row again.
      for (const row of rows) {
        if (row.hidden !== hidden) row.hidden = hidden;
        if (!hidden) row.chosen?.draw();
      }
    }
    rest.hidden = fitting <= most;
    const shown = rest.hidden ? "" : `, ${most} of them shown`;
    said.textContent = fitting < texts.size || words.length || shown ? `${fitting} of ${texts.size} rows${shown}` : "";
    for (const cell of table.querySelectorAll("tfoot [data-mean]")) showMean(table, cell);
  };
  const selections = ["level", "delegate", "device", "state"].map((name) => selection(table, tools, name, apply));
  input.addEventListener("input", () => {
    choose(table, "filter", input.value.trim());
    apply();
  });
  if (input.value || chosen.size || later.length) apply();
  // They were out of sight from the beginning, by the style sheet.
  for (const row of later) row.classList.remove("later");
  if (later.length) tools.append(rest);
  return apply;
}

function equip(table) {
  const tools = document.createElement("div");
  tools.className = "tools";
  const said = document.createElement("output");
  const { rows } = table.tBodies[0];
  const show = rows.length > 3 ? filterable(table, tools, said) : () => [...rows].forEach((row) => row.chosen?.draw());
  if (table.dataset.choices) choosable(table, tools, said);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy as Markdown";
  button.addEventListener("click", () => copy(markdown(table), said));
  tools.append(button, said);
  table.closest(".scroll").before(tools);
  sortable(table, show);
}

document.querySelectorAll("table[data-tools]").forEach(equip);
