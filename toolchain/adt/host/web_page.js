"use strict";
// What the pages share. Everything in the JSON of #data is set as text, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
const tiles = (rows) => make("div", { class: "tiles" }, ...rows.filter(Boolean).map(([value, label]) =>
  make("div", { class: "tile" }, make("b", {}, value), make("span", {}, label))));

const known = (value) => value !== null && value !== undefined;
const digits = (value) => (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3));
function scaled(value, units, step) {
  let at = 0;
  while (value >= step && at < units.length - 1) { value /= step; at += 1; }
  return `${at === 0 && Number.isInteger(value) ? value : digits(value)} ${units[at]}`;
}
const time = (us) => (us >= 1000 ? `${digits(us / 1000)} ms` : `${digits(us)} µs`);
const size = (bytes) => (known(bytes) ? scaled(bytes, ["B", "KiB", "MiB", "GiB"], 1024) : "?");
const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// Numbers are as wide as they are: a drawing grows until none is cut.
function fit(svg) {
  const { x, y, width, height } = svg.viewBox.baseVal; const box = svg.getBBox();
  const left = Math.min(x, box.x - 2); const top = Math.min(y, box.y - 2);
  const right = Math.max(x + width, box.x + box.width + 2); const bottom = Math.max(y + height, box.y + box.height + 2);
  svg.setAttribute("viewBox", `${left} ${top} ${right - left} ${bottom - top}`);
}
