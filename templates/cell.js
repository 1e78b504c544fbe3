// Draws a cell from its shard, #SHARD/CELL, or lists the cells of one, #SHARD. A shard is a script that calls
// `shard`: a page that is opened from file:// can load nothing else.
"use strict";

const place = document.getElementById("cell");

// Hidden characters are shown by name, as on every other page.
function visible(text) {
  const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
  return text.replace(hidden, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// As short_name of the farm: the middle of a long name is left out.
function short(name) {
  return name.length <= 72 ? name : `${name.slice(0, 59)}…${name.slice(-12)}`;
}

function element(tag, className, ...content) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...content.map((one) => (typeof one === "string" ? visible(one) : one)));
  return made;
}

function link(text, href) {
  if (!href) return text;
  const made = element("a", "", element("bdi", "", text));
  made.setAttribute("href", href);
  return made;
}

// The fields of a record as [name, text], those of records within it with their names joined by points.
function fields(record, prefix = "") {
  return Object.entries(record).flatMap(([name, value]) => {
    if (value === null || value === "") return [];
    if (Array.isArray(value)) {
      if (!value.length) return [];
      return [[prefix + name, value.map((one) => (typeof one === "object" ? JSON.stringify(one) : String(one))).join("; ")]];
    }
    return typeof value === "object" ? fields(value, `${prefix}${name}.`) : [[prefix + name, String(value)]];
  });
}

function facts(title, record) {
  const rows = fields(record);
  if (!rows.length) return [];
  const list = element("dl", "facts");
  for (const [name, value] of rows) {
    list.append(element("div", "", element("dt", "", element("bdi", "", name)), element("dd", "", element("bdi", "", value))));
  }
  return [element("section", "", element("h2", "", title), list)];
}

function drawCell(row) {
  const [model, history] = row.model;
  const [device, deviceName, devicePage] = row.device;
  document.title = `${visible(short(model))}, ${visible(row.delegate)} · Delegate Farm`;
  const meta = [
    element("span", "", row.status), element("span", "", link(deviceName, devicePage)),
    element("span", "", "in ", link(...row.campaign)), element("span", "", `finished ${row.finished}`),
    element("span", "", "again: ", element("code", "", `farm repro ${row.cell}`)),
    element("span", "", "raw samples: ", element("code", "", `farm show ${row.cell} --all`)),
  ];
  const parts = [
    element("h1", "", link(short(model), history), " ", element("span", "on", `on ${row.delegate} @ ${device}`)),
    element("p", "meta", ...meta),
  ];
  if (row.reason) parts.push(element("p", "notice", row.reason));
  if (row["not compared"]) parts.push(element("p", "notice tone-bad", `Takes part in no comparison: ${row["not compared"]}`));
  if (row.p50) parts.push(element("p", "lede", "p50 ", element(row["not compared"] ? "s" : "strong", "", row.p50)));
  const measured = row.measurement || {};
  const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const single = Object.fromEntries(Object.entries(measured).filter(([, value]) => !isGroup(value)));
  parts.push(...facts("What was measured", row.asked), ...facts("Measurement", single));
  for (const [name, value] of Object.entries(measured)) {
    if (isGroup(value)) parts.push(...facts(name.replaceAll("_", " "), value));
  }
  parts.push(...facts("Environment", row.environment));
  place.replaceChildren(...parts);
}

function drawList(name, rows) {
  const body = element("tbody", "");
  for (const [id, row] of Object.entries(rows)) {
    const number = element("td", "num", row["not compared"] ? element("s", "", row.p50) : row.p50 || row.status);
    number.dataset.column = "p50";
    const where = element("td", "", link(`${row.delegate} @ ${row.device[0]}`, `#${name}/${id}`));
    where.dataset.column = "delegate @ device";
    const head = element("th", "", link(short(row.model[0]), row.model[1]));
    head.scope = "row";
    body.append(element("tr", "", head, where, number));
  }
  const heads = ["model", "delegate @ device", "p50"].map((text) => Object.assign(element("th", "", text), { scope: "col" }));
  const table = element("table", "plain stack places", element("thead", "", element("tr", "", ...heads)), body);
  const campaign = Object.values(rows)[0]?.campaign ?? ["", ""];
  place.replaceChildren(element("h1", "", "Cells of ", link(...campaign)), element("div", "scroll wide", table));
}

function say(text) {
  place.replaceChildren(element("p", "notice tone-bad", text));
}

const ADDRESS = /^#([0-9a-z-]+-[0-9]+)(?:\/([0-9a-z-]+))?$/;
const [, name, id] = ADDRESS.exec(location.hash) ?? [];

// Called by the script of a shard.
async function shard(packed) {
  try {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const rows = JSON.parse(await new Response(unpacked).text());
    if (!id) drawList(name, rows);
    else if (Object.hasOwn(rows, id)) drawCell(rows[id]);
    else say(`No cell ${id} is in the data ${name}.`);
  } catch (error) {
    say(`The data ${name} cannot be read: ${error.message || error}. Build the site again.`);
  }
}

addEventListener("hashchange", () => {
  if (ADDRESS.test(location.hash)) location.reload();
});
if (name) {
  const script = document.createElement("script");
  script.src = `${place.dataset.shards}${name}.js`;
  script.addEventListener("error", () => say(`This site has no data ${name}. Build it again, or ask farm show ${id ?? "CELL"} --all.`));
  document.head.append(script);
} else {
  say("The address names no cell: it ends with #SHARD/CELL, as the links of a campaign's page do.");
}
