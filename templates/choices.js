// Other figures, baselines and versions on the home page: #metric=NAME&baseline=NAME&version=NAME. What they show is in a
// script for each version, which is read when somebody chooses; a row is drawn as soon as it is shown.
"use strict";

const P50_PLACE = 0;
const MEMORY = /MiB$/;
const BAR = { width: 132, margin: 5, least: 1.25, share: 0.06 };

// As milliseconds of the farm writes it: three significant digits.
function threeDigits(value) {
  if (value >= 1000) return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  const [, places] = [[100, 0], [10, 1], [1, 2], [0.1, 3], [0.01, 4]].find(([bound]) => value >= bound) ?? [];
  return places === undefined ? String(Number(value.toPrecision(2))) : value.toFixed(places);
}

function hostOf(device) {
  return device.slice(0, Math.max(0, device.lastIndexOf(".")));
}

// The result of a baseline that is beside another one: itself, that on its device, else the only one on its host.
function beside(columns, shown, name) {
  if (shown.delegate === name) return shown;
  const own = columns.filter((one) => one.delegate === name);
  const near = own.filter((one) => hostOf(one.device) === hostOf(shown.device));
  return own.find((one) => one.device === shown.device) ?? (near.length === 1 ? near[0] : null);
}

// The ratio over a baseline: what was measured by turns, else the quotient of the two figures.
function ratioOver(columns, shown, { place, baseline, heading }) {
  const [own, ...stored] = shown.over === "baseline" ? [shown.delegate] : shown.over ?? [];
  if (place === P50_PLACE && stored.length && (baseline || own) === own) {
    const [value, text, sign, word, tone] = stored;
    return { value, text, sign, word, tone };
  }
  const base = beside(columns, shown, baseline || own);
  if (!base) return null;
  if (base === shown) return { value: "", text: "baseline", word: "", sign: "", tone: "base" };
  const value = base.values[place] / shown.values[place];
  const text = MEMORY.test(heading) ? `${threeDigits(1 / value)}× the memory` : ratioText(value);
  return { value, text, sign: "≈", word: "unpaired", tone: "unjudged" };
}

// As log_scale of the site: around all values, and at least so wide that noise stays small.
function barOf(values, shown, ends) {
  const [low, high] = [Math.min(...values, ...ends), Math.max(...values, ...ends)];
  const widen = Math.max(1, Math.sqrt(BAR.least / (high / low)));
  const [from, to] = [low / widen, high * widen].map(Math.log);
  const edge = (to - from) * BAR.share;
  const at = (value) => (BAR.margin + ((Math.log(value) - from + edge) / (to - from + 2 * edge)) * (BAR.width - 2 * BAR.margin)).toFixed(1);
  const others = values.filter((value) => value !== shown).map((value) => `M${at(value)} 6h0`).join("");
  const bar = drawn("svg", { class: "bar", viewBox: `0 0 ${BAR.width} 12`, width: BAR.width, height: 12, "aria-hidden": "true" });
  bar.append(drawn("path", { class: "track", d: `M0 6H${BAR.width}` }), drawn("path", { class: "others", d: others }));
  if (ends.length) bar.append(drawn("path", { class: "whisker", d: `M${at(ends[0])} 6H${at(ends[1])}M${at(ends[0])} 3V9M${at(ends[1])} 3V9` }));
  bar.append(drawn("circle", { class: "dot", cx: at(shown), cy: 6, r: 2.6 }));
  return bar;
}

function ratioCell(found) {
  if (!found) return cell("ratio", "", element("span", "quiet", "no ratio"));
  const { text, sign, word, tone } = found;
  const made = element("span", tone === "base" ? "speedup base" : `speedup tone-${tone}`);
  if (sign) made.append(Object.assign(element("span", "sign", sign), { ariaHidden: "true" }), " ");
  made.append(text, ...(word ? [" ", element("span", word === "unpaired" ? "unpaired" : "aside", word)] : []));
  return cell("ratio", "", made);
}

// The cells of a line behind its model's name.
function cellsOf(columns, shown, choice, all, href) {
  const missing = all - columns.length;
  const counts = cell("missing", "num", ...(missing ? [link(String(missing), href), ` of ${all}`] : [`0 of ${all}`]));
  if (!shown) {
    const none = cell("fastest", "", element("span", "quiet", choice.version ? `no ${choice.heading} of ${choice.version}` : `no ${choice.heading}`));
    none.colSpan = 5;
    return [none, counts, cell("measured", "", "—"), cell("", "")];
  }
  // Behind the figures are the ends of the interval of p50, if it has one.
  const ends = choice.place === P50_PLACE ? shown.values.slice(choice.count) : [];
  const figure = cell(choice.heading, "num key", threeDigits(shown.values[choice.place]));
  if (ends.length) figure.append(element("span", "below", ends.map(threeDigits).join(" – ")));
  const [sign, word, tone] = shown.outputs ?? ["", "", "quiet"];
  return [
    cell("fastest", "", link(shown.delegate, href), " ", element("span", "device", "@ ", element("bdi", "", shown.device))),
    figure,
    cell("among all", "", barOf(columns.map((one) => one.values[choice.place]).filter(Boolean), shown.values[choice.place], ends)),
    ratioCell(ratioOver(columns, shown, choice)),
    cell("outputs", "", element("span", `tone-${tone}`, Object.assign(element("span", "sign", sign), { ariaHidden: "true" }), ` ${word}`)),
    counts,
    cell("measured", "nowrap", shown.at || "—"),
    cell("", ""),
  ];
}

// Keeps what a row shows at first, and gives it what was chosen: its words and keys now, its cells when it is shown.
function rechoose(row, written, choice) {
  row.first ??= { delegate: row.dataset.delegate, device: row.dataset.device, state: row.dataset.state };
  const columns = written.map(([delegate, device, at, outputs, values, over]) => ({ delegate, device, at, outputs, values, over }));
  const known = columns.filter((one) => one.values[choice.place]);
  const shown = known.reduce((best, one) => (best && best.values[choice.place] <= one.values[choice.place] ? best : one), null);
  const [head] = row.cells;
  const all = Number(row.dataset.columns);
  const ratio = shown && ratioOver(known, shown, choice);
  Object.assign(row.dataset, { delegate: shown?.delegate ?? "", device: shown?.device ?? "", state: shown ? "result" : "no result" });
  let isDrawn = false;
  row.chosen = {
    text: [head.textContent, shown?.delegate, shown?.device, ratio?.text, ratio?.word, shown?.outputs?.[1]].join(" "),
    keys: { 1: shown?.delegate ?? "", 2: String(shown?.values[choice.place] ?? ""), 4: String(ratio?.value ?? ""), 5: shown?.outputs?.[1] ?? "", 6: String(all - known.length), 7: shown?.at ?? "" },
    draw() {
      if (isDrawn) return;
      isDrawn = true;
      row.firstCells ??= [...row.cells];
      row.replaceChildren(head, ...cellsOf(known, shown, choice, all, head.querySelector("a").getAttribute("href")));
    },
  };
}

function restore(row) {
  if (row.firstCells) row.replaceChildren(...row.firstCells);
  Object.assign(row.dataset, row.first);
  row.chosen = undefined;
}

// Adds the choices of a table that has some.
function choosable(table, tools, said) {
  const { figures, baselines, versions } = JSON.parse(table.dataset.choices);
  const rows = [...table.tBodies[0].rows];
  const title = table.tHead.rows[0].cells[2];
  const read = new Map();
  const offered = {
    metric: figures.map(([name, heading], index) => [index === P50_PLACE ? "" : name, heading]),
    baseline: [["", "over the campaign's baseline"], ...baselines.map((name) => [name, `over ${name}`])],
    version: [["", "newest results"], ...versions.map(([name]) => [name, name])],
  };
  const selects = Object.fromEntries(Object.entries(offered).map(([name, options]) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", { metric: "Metric", baseline: "Baseline of the ratio", version: "Version" }[name]);
    select.append(...options.map(([value, text]) => new Option(visible(text), value)));
    select.value = options.some(([value]) => value === recalled(table, name)) ? recalled(table, name) : "";
    select.hidden = options.length < 2;
    select.addEventListener("change", () => {
      choose(table, name, select.value);
      apply();
    });
    tools.append(select);
    return [name, select];
  }));
  let turn = 0;
  const apply = async () => {
    turn += 1;
    const mine = turn;
    const [metric, baseline, version] = [selects.metric.value, selects.baseline.value, selects.version.value];
    const place = Math.max(P50_PLACE, figures.findIndex(([name]) => name === metric));
    const choice = { place, baseline, version, heading: figures[place][1], count: figures.length };
    const stem = versions.find(([name]) => name === version)?.[1] ?? "newest";
    const isFirst = !metric && !baseline && !version;
    try {
      if (!isFirst && !read.has(stem)) read.set(stem, await readShard(stem));
    } catch (error) {
      said.textContent = error.message;
      return;
    }
    // Meanwhile something else was chosen.
    if (mine !== turn) return;
    rows.forEach((row, index) => (isFirst ? restore(row) : rechoose(row, read.get(stem)[index], choice)));
    title.firstChild.textContent = choice.heading;
    title.querySelector("button").setAttribute("aria-label", `sort by ${choice.heading}`);
    table.dispatchEvent(new Event("redrawn"));
  };
  if (Object.values(selects).some((select) => select.value)) queueMicrotask(apply);
}
