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

function sortKey(row, index) {
  const cell = row.cells[index];
  const key = cell.dataset.sort ?? squeeze(cell.textContent);
  const number = Number.parseFloat(key.replace(/[\u202f\s]/g, ""));
  return { missing: key === "" || key.startsWith("—"), number, text: key };
}

function compare(a, b) {
  if (a.missing || b.missing) return 0;
  if (!Number.isNaN(a.number) && !Number.isNaN(b.number)) return a.number - b.number;
  return a.text.localeCompare(b.text);
}

function sortable(table) {
  const body = table.tBodies[0];
  const original = groups(body);
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "↕";
    button.setAttribute("aria-label", `sort by ${headText(head)}`);
    const name = head.querySelector(".delegate");
    if (name) name.after(button);
    else head.append(button);
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" }[head.getAttribute("aria-sort") || "none"];
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
    });
  });
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

function filterable(table, tools, said) {
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "Filter rows";
  input.setAttribute("aria-label", "Filter rows; every word must occur");
  tools.append(input);
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    const all = groups(table.tBodies[0]);
    for (const rows of all) {
      const text = rows.map((row) => row.textContent).join(" ").toLowerCase();
      const match = words.every((word) => text.includes(word));
      for (const row of rows) row.hidden = !match;
      shown += match;
    }
    said.textContent = words.length ? `${shown} of ${all.length} rows` : "";
    for (const cell of table.querySelectorAll("tfoot [data-mean]")) showMean(table, cell);
    if (table.dataset.tools === "matrix") {
      history.replaceState(null, "", words.length ? `#filter=${encodeURIComponent(input.value)}` : "#");
    }
  };
  input.addEventListener("input", apply);
  const wanted = /^#filter=(.*)$/.exec(location.hash);
  if (wanted && table.dataset.tools === "matrix") {
    input.value = decodeURIComponent(wanted[1]);
    apply();
  }
}

for (const table of document.querySelectorAll("table[data-tools]")) {
  const tools = document.createElement("div");
  tools.className = "tools";
  const said = document.createElement("output");
  if (table.tBodies[0].rows.length > 3) filterable(table, tools, said);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy as Markdown";
  button.addEventListener("click", () => copy(markdown(table), said));
  tools.append(button, said);
  table.closest(".scroll").before(tools);
  sortable(table);
}
