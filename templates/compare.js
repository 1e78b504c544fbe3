// Sets any two campaigns against each other, or one column of each: #first=ID&second=ID&from=COLUMN&to=COLUMN.
// Ratios and words are those of orchestrator/results/regression.py but for its verdicts on speed, which take what the
// sessions of a device differ by: `farm compare` gives these.
"use strict";

const MOST_ROWS = 500;
// The least factor across the drawing, so that differences of a per cent look small.
const LEAST = 1.1;
const SIGNS = {
  broken: "✗", "not judged": "·", repaired: "✓", void: "!", same: "=", added: "+", removed: "-", missing: "-",
};
const ORDER = Object.keys(SIGNS);
const TONES = { broken: "bad", repaired: "faster" };
const RATIO = "ratio, logarithmic";

const key = (...parts) => JSON.stringify(parts);

// One side: its cells by their names, of a column by model and level; and all of them by how they were run.
function sideOf(rows, column) {
  const shown = column ? rows.filter((row) => columnOf(row) === column) : rows;
  const names = (row) => [row.model[0], ...(column ? [] : [row.delegate, row.device[0]]), row.asked.level];
  return {
    cells: new Map(shown.map((row) => [key(...names(row)), row])),
    run: new Map(rows.map((row) => [key(row.model[0], row.asked.level, row.device[0], row.arm), row])),
  };
}

function isOver(ratio, row) {
  return ratio && ratio.device_id === row.device[0] && ratio.baseline_id === row.arm;
}

// The half of an interval in logarithms; null for none, and for one from 0.
function half(ends) {
  return ends && ends[0] > 0 ? Math.log(ends[1] / ends[0]) / 2 : null;
}

function both(first, second) {
  return first === null || second === null ? null : Math.hypot(first, second);
}

function isUnchanged(one, other) {
  const facts = (row) => key(row.asked["model sha256"], row.arm, row.device[0], Object.entries(row.environment).sort());
  return one && other && !one["not compared"] && !other["not compared"] && facts(one) === facts(other);
}

// The logarithm of one's time over the other's, the half of its interval, and what it is a ratio of.
function estimate(one, other, sides) {
  const [before, after] = [one, other].map((row) => (row?.counted ? row.measurement : null));
  if (!before?.latency_ms.p50 || !after?.latency_ms.p50) return null;
  if (isOver(after.ratio, one)) return { log: Math.log(after.ratio.median), half: half(after.ratio.ci95), of: "blocks" };
  if (isOver(before.ratio, other)) return { log: -Math.log(before.ratio.median), half: half(before.ratio.ci95), of: "blocks" };
  const [base, baseAgain] = [[one, before, sides[0]], [other, after, sides[1]]].map(([row, { ratio }, side]) =>
    ratio && side.run.get(key(row.model[0], row.asked.level, ratio.device_id, ratio.baseline_id)));
  if (isUnchanged(base, baseAgain)) {
    const known = both(half(before.ratio.ci95), half(after.ratio.ci95));
    if (known !== null) return { log: Math.log(after.ratio.median / before.ratio.median), half: known, of: "ratios over the baseline" };
  }
  const [times, timesAgain] = [before.latency_ms, after.latency_ms];
  return { log: Math.log(times.p50 / timesAgain.p50), half: both(half(times.ci95), half(timesAgain.ci95)), of: "medians" };
}

// The word for a change, and why.
function judged(one, other, found) {
  const sides = [["before", one], ["after", other]].filter(([, row]) => row);
  const said = (text) => sides.map(([name, row]) => [name, text(row)]).filter(([, one]) => one).map((one) => one.join(": "));
  const kept = said((row) => row.counted && row.reason);
  if (found) {
    const voids = said((row) => row["not compared"]);
    const source = (row) => row.asked["reused from"] ?? row.cell;
    if (voids.length) return ["void", [...voids, ...kept]];
    return source(one) === source(other) && !kept.length ? ["same", ["one result, reused"]] : ["not judged", kept];
  }
  const whys = said((row) => !row.counted && (row.reason || row["not compared"] || row.status));
  if (one?.counted && other?.counted) return ["missing", ["no p50: too few samples"]];
  if (sides.some(([, row]) => row["not compared"].startsWith("imported: "))) return ["missing", whys];
  if (!one || !other) return [one ? "removed" : "added", whys];
  return [one.counted ? "broken" : other.counted ? "repaired" : "missing", whys];
}

function changesOf(sides) {
  const keys = new Set(sides.flatMap((side) => [...side.cells.keys()]));
  const changes = [...keys].map((name) => {
    const [one, other] = sides.map((side) => side.cells.get(name));
    const found = estimate(one, other, sides);
    const [verdict, why] = judged(one, other, found);
    return { one, other, found, verdict, why: why.join("; ") };
  });
  return changes.sort((a, b) => ORDER.indexOf(a.verdict) - ORDER.indexOf(b.verdict) || (a.found?.log ?? 0) - (b.found?.log ?? 0));
}

// Facts of the environments that differ between cells that both have a result, with the number of those cells.
function differencesOf(changes) {
  const found = new Map();
  for (const { one, other } of changes.filter((change) => change.found)) {
    const [before, after] = [one, other].map((row) =>
      ({ "model sha256": row.asked["model sha256"].slice(0, 12), device: row.device[1], ...row.environment }));
    for (const name of Object.keys({ ...before, ...after })) {
      const said = `${name}: ${before[name] ?? "not recorded"} → ${after[name] ?? "not recorded"}`;
      if (before[name] !== after[name]) found.set(said, (found.get(said) ?? 0) + 1);
    }
  }
  return [...found].sort();
}

// As `ratio` of the farm writes it: 1.42×, 0.052×, 19.8×.
function ratioOf(log) {
  const [, digits] = [[100, 0], [10, 1], [0.1, 2]].find(([bound]) => Math.exp(log) >= bound) ?? [];
  return `${digits === undefined ? Number(Math.exp(log).toPrecision(2)) : Math.exp(log).toFixed(digits)}×`;
}

function ratioCell(found, widest) {
  if (!found) return cell(RATIO, "drawn");
  const at = (log) => `${(50 * (1 + log / widest)).toFixed(2)}%`;
  const ends = found.half === null ? "" : ` [${[-1, 1].map((sign) => ratioOf(found.log + sign * found.half).slice(0, -1)).join(" – ")}]`;
  const svg = drawn("svg", { class: "field strip", height: 14, role: "img", "aria-label": `${ratioOf(found.log)}${ends}` });
  svg.append(drawn("line", { class: "mark", x1: "50%", x2: "50%", y1: 0, y2: 14 }));
  if (ends) svg.append(drawn("line", { class: "whisker", x1: at(found.log - found.half), x2: at(found.log + found.half), y1: 7, y2: 7 }));
  svg.append(drawn("circle", { class: "dot", cx: at(found.log), cy: 7, r: 3 }));
  const made = cell(RATIO, "drawn", svg, " ", element("span", "small quiet", `${ratioOf(found.log)}${ends} of ${found.of}`));
  made.dataset.sort = Math.exp(found.log);
  return made;
}

function rowOf({ one, other, found, verdict, why }, widest) {
  const shown = other ?? one;
  const places = [...new Set([one, other].filter(Boolean).map(columnOf))].join(" → ");
  const figure = (name, row) => cell(name, "num", row
    ? link((row.counted && row.p50) || row["not compared"] || row.status, row.href) : element("span", "quiet", "not in it"));
  const sign = Object.assign(element("span", "sign", SIGNS[verdict]), { ariaHidden: "true" });
  const word = [element("span", `speedup tone-${TONES[verdict] ?? "similar"}`, sign, ` ${verdict}`)];
  if (why) word.push(" ", element("span", "below", why.length > 120 ? `${why.slice(0, 119)}…` : why));
  const row = tableRow(shown, cell("on", "", element("bdi", "", places)), figure("before", one),
    figure("after", other), cell("verdict", "", ...word), ratioCell(found, widest));
  Object.assign(row.dataset, { level: shown.asked.level, delegate: shown.delegate, device: shown.device[0], state: verdict });
  return row;
}

// The number of changes by word, and the geometric mean: of the ratios of blocks, or of all where there are none.
function countsOf(changes) {
  const counts = ORDER.map((word) => [changes.filter(({ verdict }) => verdict === word).length, word]).filter(([count]) => count);
  const compared = changes.filter(({ found, verdict }) => found && verdict !== "void").map(({ found }) => found);
  const paired = compared.filter(({ of }) => of === "blocks");
  const averaged = paired.length ? paired : compared;
  const mean = ratioOf(averaged.reduce((sum, { log }) => sum + log, 0) / averaged.length);
  const over = `geometric mean ${mean} over ${averaged.length} cell${averaged.length === 1 ? "" : "s"}${paired.length ? "" : ", unpaired"}`;
  return [...counts.map((one) => one.join(" ")), ...(averaged.length ? [over] : [])];
}

function readingOf(ids, byColumn) {
  const text = "The ratio is the time before over the time after: above 1 is faster. Its interval has those of both results, but not what two sessions differ by";
  if (byColumn) return [`${text}.`];
  const second = campaigns.get(ids[1]);
  const judgedPage = second.dataset.before === ids[0] ? second.querySelector("a.judged").getAttribute("href") : "";
  return [`${text}: `, link("the verdicts", judgedPage), " of ", element("code", "", `farm compare ${ids.join(" ")}`), " take that in."];
}

function drawComparison(ids, changes, byColumn) {
  const shown = changes.slice(0, MOST_ROWS);
  const widest = Math.max(Math.log(LEAST), ...shown.map(({ found }) => (found ? Math.abs(found.log) + (found.half ?? 0) : 0)));
  const told = [
    element("p", "meta", ...countsOf(changes).map((said) => element("span", "", said))),
    element("p", "reading", ...readingOf(ids, byColumn)),
  ];
  const differences = differencesOf(changes).map(([said, count]) => element("li", "break", `${said} `, element("span", "quiet", `${count} cell${count === 1 ? "" : "s"}`)));
  if (differences.length) {
    const list = element("ul", "plainlist", ...differences);
    told.push(Object.assign(element("details", "", element("summary", "", "What else differs"), list), { open: true }));
  }
  const names = ["model", "delegate @ device", "before", "after", "verdict", `${RATIO} from ${ratioOf(-widest)} to ${ratioOf(widest)}`];
  const made = table("forest", names, shown.map((change) => rowOf(change, widest)));
  made.dataset.tools = "home";
  const rest = changes.length > MOST_ROWS ? [element("p", "quiet", `${changes.length - MOST_ROWS} more: farm compare lists all.`)] : [];
  result.replaceChildren(...told, element("div", "scroll wide", made), ...rest);
  equip(made);
}

// The campaigns, newest first, from the list that is on the page without a script, too.
const campaigns = new Map([...document.querySelectorAll("tr[data-campaign]")].map((row) => [row.dataset.campaign, row]));
const read = new Map();

// The rows of a campaign, read once, each with the address of its cell.
function rowsOf(id) {
  if (!read.has(id)) {
    const names = Array.from({ length: Number(campaigns.get(id).dataset.shards) }, (_, number) => `${id}-${number}`);
    const rows = names.map(async (name) => Object.entries(await readShard(name)).map(([end, row]) => ({ ...row, href: `${place.dataset.cell}#${name}/${end}` })));
    read.set(id, Promise.all(rows).then((found) => found.flat()));
  }
  return read.get(id);
}

const selects = new Map(["first", "from", "second", "to"].map((name) => [name, document.createElement("select")]));
const result = Object.assign(element("div", ""), { ariaLive: "polite" });
let turn = 0;

function fill(name, options, value) {
  const select = selects.get(name);
  select.replaceChildren(...options.map(([one, text]) => new Option(visible(text), one)));
  select.value = value;
}

// Reads both campaigns and draws what the address says.
async function show() {
  turn += 1;
  const mine = turn;
  const ids = [chosen.get("first"), chosen.get("second")];
  const unknown = ids.find((id) => !campaigns.has(id));
  if (unknown !== undefined) {
    say(`This site has no campaign ${unknown}: choose another one.`, result);
    return;
  }
  result.replaceChildren(element("p", "quiet", "Reading the cells of both…"));
  try {
    const rows = await Promise.all(ids.map(rowsOf));
    // Meanwhile something else was chosen.
    if (mine !== turn) return;
    const columns = [chosen.get("from") || chosen.get("to"), chosen.get("to") || chosen.get("from")];
    ["from", "to"].forEach((name, side) => {
      const names = [...new Set(rows[side].map(columnOf))];
      fill(name, [["", "every column"], ...names.map((one) => [one, one])], columns[side] ?? "");
    });
    const changes = changesOf(rows.map((own, side) => sideOf(own, columns[side])));
    if (changes.length) drawComparison(ids, changes, Boolean(columns[0]));
    else say(`Neither campaign has a cell of ${[...new Set(columns)].join(" or ")}.`, result);
  } catch (error) {
    say(error.message, result);
  }
}

function start() {
  const [newest, next = newest] = campaigns.keys();
  if (!chosen.get("second")) chosen.set("second", newest);
  if (!chosen.get("first")) chosen.set("first", campaigns.get(chosen.get("second"))?.dataset.before || next);
  const listed = [...campaigns].map(([id, row]) => [id, row.dataset.name]);
  const tools = [["first", "from", "before"], ["second", "to", "after"]].map(([name, column, word]) => {
    fill(name, listed, chosen.get(name));
    selects.get(name).setAttribute("aria-label", `Campaign ${word}`);
    selects.get(column).setAttribute("aria-label", `Column ${word}`);
    return element("div", "tools", element("span", "", word), selects.get(name), selects.get(column));
  });
  for (const [name, select] of selects) {
    select.addEventListener("change", () => {
      // A column that is not chosen follows the other one: without both, all are shown.
      for (const one of select.value ? [name] : ["from", "to"]) keep(one, select.value);
      show();
    });
  }
  place.replaceChildren(...tools, result);
  show();
}

if (campaigns.size) start();

// A link of the page's own may differ in its end alone, for which nothing is read anew.
addEventListener("hashchange", () => {
  if (location.hash.includes("=")) location.reload();
});
