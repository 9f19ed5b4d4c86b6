/* words.js: numbers with units, and elements. */

const MINUTE = 60e9; // in nanoseconds
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/* Three digits at least, as the command line prints them. */
function bytesText(n) {
  let unit = 0;
  let value = n;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return unit === 0 ? `${n} B` : `${value.toFixed(Math.abs(value) >= 100 ? 1 : 2)} ${UNITS[unit]}`;
}

/* Digits so that neighbours of an axis with this step differ. */
function timeText(ns, step = 0) {
  const size = Math.abs(ns);
  if (ns === 0) return "0";
  if (step >= MINUTE) return step % MINUTE ? `${(ns / MINUTE).toFixed(1)} min` : `${Math.round(ns / MINUTE)} min`;
  const [unit, name] = size >= 1e9 ? [1e9, "s"] : size >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const value = ns / unit;
  const digits = step > 0 ? Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9))
                          : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return `${value.toFixed(Math.min(digits, 6))} ${name}`;
}

/* A duration as people say it: long ones in minutes and hours. */
function durationText(ns) {
  const s = ns / 1e9;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.round(s % 3600 / 60)} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return timeText(ns);
}

function countText(n) {
  return Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
}

/* A rate: slow ones keep a digit behind the point. */
function rateText(x) {
  return x >= 100 ? countText(x) : x.toFixed(1);
}

function shortCount(n) {
  for (const [size, name] of [[1e9, "B"], [1e6, "M"], [1e3, "K"]])
    if (n >= size) return (n / size).toFixed(n >= 100 * size ? 0 : n >= 10 * size ? 1 : 2) + name;
  return `${n}`;
}

function percentText(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "";
}

function signedPercent(x) {
  return `${x >= 0 ? "+" : "−"}${(100 * Math.abs(x)).toFixed(1)} %`;
}

function byId(id) {
  return document.getElementById(id);
}

/* element("td.left", {title: "x"}, child, ...): children that are no elements become text. */
function element(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const e = document.createElement(tag);
  if (classes.length) e.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children.filter(c => c !== null && c !== undefined));
  return e;
}

function swatch(colour) {
  const e = element("span.swatch");
  e.style.background = colour;
  return e;
}
