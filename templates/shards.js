// Reads shards, and makes elements of what they hold. A shard is a script that calls `shard` with packed data: a page
// that is opened from file:// can load nothing else.
"use strict";

const place = document.querySelector("[data-shards]");

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

function columnOf(row) {
  return `${short(row.delegate)} @ ${row.device[0] === "-" ? "no device" : short(row.device[0])}`;
}

// The namespace of drawings, as the parser knows it: no file of the site has an address of elsewhere.
const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A cell of a table; its column's name stands beside it on a narrow screen.
function cell(column, className, ...content) {
  const made = element("td", className, ...content);
  made.dataset.column = column;
  return made;
}

// A row of a table, which begins with the model of a shard's row.
function tableRow(row, ...cells) {
  return element("tr", "", Object.assign(element("th", "", link(short(row.model[0]), row.model[1])), { scope: "row" }), ...cells);
}

function table(className, names, rows) {
  const heads = names.map((text) => Object.assign(element("th", "", text), { scope: "col" }));
  return element("table", `plain stack ${className}`, element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...rows));
}

function say(text, where = place) {
  where.replaceChildren(element("p", "notice tone-bad", text));
}

const waiting = new Map();

// The data of a shard: its rows by the ends of their addresses, or the choices of home's lines. Rejected with a sentence where it is missing or damaged.
function readShard(name) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${place.dataset.shards}${name}.js`;
    waiting.set(script, (packed) => resolve(unpacked(name, packed)));
    // No more than a rejection that comes too late, where the script has called.
    script.addEventListener("load", () => reject(new Error(`The data ${name} cannot be read. Build the site again.`)));
    script.addEventListener("error", () => reject(new Error(`This site has no data ${name}. Build it again.`)));
    document.head.append(script);
  });
}

async function unpacked(name, packed) {
  try {
    const bytes = Uint8Array.from(atob(packed), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  } catch (error) {
    throw new Error(`The data ${name} cannot be read: ${error.message || error}. Build the site again.`);
  }
}

// Called by the script of a shard.
function shard(packed) {
  waiting.get(document.currentScript)(packed);
}
