// Draws a cell from its shard, #SHARD/CELL, or lists the cells of one, #SHARD.
"use strict";

// A member of a list in words: `name p50, value 3.1`.
function inWords(value) {
  if (Array.isArray(value)) return value.map(inWords).join(" ");
  if (value === null || typeof value !== "object") return String(value);
  const known = Object.entries(value).filter(([, one]) => one !== null && one !== "" && one.length !== 0);
  return known.map(([name, one]) => `${name.replaceAll("_", " ")} ${inWords(one)}`).join(", ");
}

// The fields of a record as [name, text], those of records within it with their names joined by points.
function fields(record, prefix = "") {
  return Object.entries(record).flatMap(([name, value]) => {
    if (value === null || value === "") return [];
    if (Array.isArray(value)) {
      if (!value.length) return [];
      return [[prefix + name, value.map(inWords).join(value.some((one) => typeof one === "object") ? "\n" : "; ")]];
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
  const listed = Object.entries(rows).map(([id, row]) => {
    const number = row["not compared"] ? element("s", "", row.p50) : row.p50 || row.status;
    const where = link(columnOf(row), `#${name}/${id}`);
    return tableRow(row, cell("delegate @ device", "", where), cell("p50", "num", number));
  });
  const campaign = Object.values(rows)[0]?.campaign ?? ["", ""];
  const drawn = element("div", "scroll wide", table("places", ["model", "delegate @ device", "p50"], listed));
  place.replaceChildren(element("h1", "", "Cells of ", link(...campaign)), drawn);
}

const ADDRESS = /^#([0-9a-z-]+-[0-9]+)(?:\/([0-9a-z-]+))?$/;
const [, name, id] = ADDRESS.exec(location.hash) ?? [];

addEventListener("hashchange", () => {
  if (ADDRESS.test(location.hash)) location.reload();
});
if (name) {
  readShard(name).then((rows) => {
    if (!id) drawList(name, rows);
    else if (Object.hasOwn(rows, id)) drawCell(rows[id]);
    else say(`No cell ${id} is in the data ${name}.`);
  }).catch((error) => say(`${error.message} Or ask farm show ${id ?? "CELL"} --all.`));
} else {
  say("The address names no cell: it ends with #SHARD/CELL, as the links of a campaign's page do.");
}
