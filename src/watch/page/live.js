/* live.js: a run as its server tells it: the state by events, curves when there are new steps. */
"use strict";
(() => {
const byId = id => document.getElementById(id);
const CLASSES = ["frozen", "weights", "masters", "optimizer", "gradients", "activations", "recompute", "logits", "workspace", "staging"];
const CURVE_MS = 2000; // between two readings of the curve
const SILENT_MS = 5000; // without a word the server is gone

let state = null, curve = null, timeline = null, curveAt = 0, heardAt = 0, runId = "", curveStep = -1, samplesSeen = -1;
let token = new URLSearchParams(location.hash.slice(1)).get("token") || sessionStorage.getItem("token") || "";
if (token) sessionStorage.setItem("token", token);
if (location.hash) history.replaceState(null, "", location.pathname); // not to be seen over a shoulder

/* ---- words ---- */

function bytesText(n) {
  if (n === null || n === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0, value = n;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit++; }
  return unit === 0 ? `${n} B` : `${value.toFixed(Math.abs(value) >= 100 ? 1 : 2)} ${units[unit]}`;
}
const countText = n => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const rateText = x => x === null || x === undefined ? "" : x >= 100 ? countText(x) : x.toPrecision(3);
function durationText(s) {
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.round(s % 3600 / 60)} min`;
  if (s >= 120) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return s >= 10 ? `${Math.round(s)} s` : `${Math.round(1000 * s)} ms`;
}
const numberText = x => x === null || x === undefined ? "none" : Math.abs(x) >= 1e-3 && Math.abs(x) < 1e5 ? x.toPrecision(5) : x.toExponential(2);

function element(name, text, kind) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
}
function setText(e, text) { if (e.textContent !== text) e.textContent = text; }
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/* ---- plots ---- */

function ticks(low, high, n) {
  const raw = (high - low) / Math.max(n, 1), power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 5, 10].map(k => k * power).find(k => k >= raw) || power;
  const out = [];
  for (let x = Math.ceil(low / step) * step; x <= high + 1e-9 * step; x += step) out.push(x);
  return out;
}

function prepare(canvas) {
  const scale = devicePixelRatio || 1, w = canvas.clientWidth, h = canvas.clientHeight;
  if (canvas.width !== Math.round(w * scale) || canvas.height !== Math.round(h * scale)) {
    canvas.width = Math.round(w * scale);
    canvas.height = Math.round(h * scale);
  }
  const c = canvas.getContext("2d");
  c.setTransform(scale, 0, 0, scale, 0, 0);
  c.clearRect(0, 0, w, h);
  c.font = "12px system-ui, sans-serif";
  return {c, w, h, left: 68, right: 8, top: 8, bottom: 22};
}

/* Lines over steps. series: {y, least, most, ink}; level: a dashed line; dots: [[step, y]]. */
class Plot {
  constructor(id, read, text) {
    this.canvas = byId(id);
    this.read = byId(read);
    this.text = text;
    this.at = -1;
    this.canvas.addEventListener("pointermove", e => this.point(e.offsetX));
    this.canvas.addEventListener("pointerdown", e => this.point(e.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.select(-1));
    this.canvas.addEventListener("blur", () => this.select(-1));
    this.canvas.addEventListener("keydown", e => this.key(e));
  }
  set(data) { this.data = data; this.paint(); }
  x(step) { const b = this.box; return b.left + (step - this.first) / Math.max(this.last - this.first, 1) * (b.w - b.left - b.right); }
  y(v) { const b = this.box; return b.h - b.bottom - (v - this.low) / (this.high - this.low || 1) * (b.h - b.top - b.bottom); }
  point(px) {
    if (!this.data || !this.box) return;
    const step = this.first + (px - this.box.left) / (this.box.w - this.box.left - this.box.right) * (this.last - this.first);
    let best = 0;
    this.data.step.forEach((s, i) => { if (Math.abs(s - step) < Math.abs(this.data.step[best] - step)) best = i; });
    this.select(best);
  }
  key(e) {
    if (!this.data || !this.data.step.length) return;
    const n = this.data.step.length, jump = e.shiftKey ? 10 : 1;
    const to = {ArrowLeft: (this.at < 0 ? n : this.at) - jump, ArrowRight: this.at + jump, Home: 0, End: n - 1, Escape: -1}[e.key];
    if (to === undefined) return;
    e.preventDefault();
    this.select(e.key === "Escape" ? -1 : Math.min(Math.max(to, 0), n - 1));
  }
  select(i) { this.at = i; this.paint(); }
  scale() {
    const {y, least, most, level, dots, fromZero} = this.data;
    let low = Infinity, high = -Infinity;
    const take = v => { if (v !== null && v !== undefined && isFinite(v)) { low = Math.min(low, v); high = Math.max(high, v); } };
    (least || y).forEach(take);
    (most || y).forEach(take);
    (dots || []).forEach(d => take(d[1]));
    if (level) take(level);
    if (fromZero) low = 0;
    if (!isFinite(low)) { low = 0; high = 1; }
    if (high === low) { high += Math.abs(high) || 1; }
    const pad = fromZero ? 0 : 0.04 * (high - low);
    this.low = low - pad;
    this.high = high + 0.04 * (high - low);
  }
  axes() {
    const {c, w, h, left, right, top, bottom} = this.box;
    c.strokeStyle = colour("grid");
    c.fillStyle = colour("soft");
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const v of ticks(this.low, this.high, Math.max(2, Math.floor((h - top - bottom) / 40)))) {
      const y = Math.round(this.y(v)) + 0.5;
      if (y < top || y > h - bottom + 1) continue;
      c.beginPath(); c.moveTo(left, y); c.lineTo(w - right, y); c.stroke();
      c.fillText(this.data.axis(v), left - 6, y);
    }
    c.textBaseline = "top";
    c.textAlign = "center";
    for (const s of ticks(this.first, this.last, Math.max(2, Math.floor((w - left - right) / 90))))
      if (Number.isInteger(s) && this.x(s) < w - 20) c.fillText(countText(s), this.x(s), h - bottom + 6);
  }
  paint() {
    const d = this.data;
    if (!d || !this.canvas.clientWidth) return;
    this.box = prepare(this.canvas);
    const {c, w, h, left, right, top, bottom} = this.box;
    this.first = d.step.length ? d.first : 0;
    this.last = d.step.length ? d.step[d.step.length - 1] : 1;
    this.scale();
    this.axes();
    if (d.least) {
      c.fillStyle = colour("band");
      c.beginPath();
      d.step.forEach((s, i) => { if (d.most[i] !== null) c.lineTo(this.x(s), this.y(d.most[i])); });
      for (let i = d.step.length - 1; i >= 0; i--) if (d.least[i] !== null) c.lineTo(this.x(d.step[i]), this.y(d.least[i]));
      c.fill();
    }
    if (d.level) {
      c.strokeStyle = colour("soft");
      c.setLineDash([5, 4]);
      c.beginPath(); c.moveTo(left, this.y(d.level)); c.lineTo(w - right, this.y(d.level)); c.stroke();
      c.setLineDash([]);
    }
    c.strokeStyle = colour(d.ink);
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.beginPath();
    d.step.forEach((s, i) => { if (d.y[i] !== null) c.lineTo(this.x(s), this.y(d.y[i])); });
    c.stroke();
    c.fillStyle = colour("eval");
    for (const [s, v] of d.dots || []) { if (v === null) continue; c.beginPath(); c.arc(this.x(s), this.y(v), 3.5, 0, 7); c.fill(); }
    const i = this.at >= 0 && this.at < d.step.length ? this.at : d.step.length - 1;
    if (this.at >= 0 && i >= 0) {
      c.strokeStyle = colour("ink");
      c.lineWidth = 1;
      c.beginPath(); c.moveTo(this.x(d.step[i]) + 0.5, top); c.lineTo(this.x(d.step[i]) + 0.5, h - bottom); c.stroke();
    }
    setText(this.read, i >= 0 ? this.text(d, i) : "no step yet");
  }
}

const span = (d, i) => d.firsts[i] === d.step[i] ? `step ${countText(d.step[i])}` : `steps ${countText(d.firsts[i])} to ${countText(d.step[i])}`;
const plots = {
  loss: new Plot("loss", "loss-read", (d, i) => `${span(d, i)}: loss ${numberText(d.y[i])}` +
    (d.firsts[i] === d.step[i] ? "" : `, ${numberText(d.least[i])} to ${numberText(d.most[i])}`) + (d.dots.length ? `; evaluated (dots): ${numberText(d.dots[d.dots.length - 1][1])}` : "")),
  lr: new Plot("lr", "lr-read", (d, i) => `${span(d, i)}: ${numberText(d.y[i])}`),
  rate: new Plot("rate", "rate-read", (d, i) => `${span(d, i)}: ${rateText(d.y[i])} ${d.unit}` + (d.level ? `; predicted (dashed): ${rateText(d.level)}` : "")),
};

function showCurve() {
  if (!curve || !curve.step || !state) return;
  const base = {step: curve.step, firsts: curve.first, first: curve.first.length ? curve.first[0] : 0};
  plots.loss.set({...base, y: curve.loss, least: curve.least, most: curve.most, dots: curve.evals, ink: "curve", axis: v => v.toPrecision(3)});
  plots.lr.set({...base, y: curve.lr, ink: "curve", fromZero: true, axis: v => v === 0 ? "0" : v.toExponential(1)});
  plots.rate.set({...base, y: curve.rate, ink: "rate", fromZero: true, level: state.run.rate_predicted, unit: state.run.rate_unit, axis: v => rateText(v) || "0"});
}

/* ---- planned memory ---- */

function paintTier(canvas, classes, now) {
  const box = prepare(canvas), {c, w, h, left, right, top, bottom} = box, n = timeline.columns;
  const names = CLASSES.filter(k => classes[k]), sums = new Array(n).fill(0);
  let most = 1;
  for (let i = 0; i < n; i++) most = Math.max(most, names.reduce((s, k) => s + classes[k][i], 0));
  const x = i => left + i / n * (w - left - right), y = v => h - bottom - v / most * (h - top - bottom);
  for (const name of names) {
    c.fillStyle = colour(name);
    c.beginPath();
    for (let i = 0; i < n; i++) { c.lineTo(x(i), y(sums[i] + classes[name][i])); c.lineTo(x(i + 1), y(sums[i] + classes[name][i])); }
    for (let i = n - 1; i >= 0; i--) { c.lineTo(x(i + 1), y(sums[i])); c.lineTo(x(i), y(sums[i])); }
    c.fill();
    for (let i = 0; i < n; i++) sums[i] += classes[name][i];
  }
  c.fillStyle = colour("soft");
  c.textAlign = "right";
  c.textBaseline = "middle";
  c.fillText(bytesText(most), left - 6, y(most) + 5);
  c.textAlign = "left";
  c.textBaseline = "top";
  let end = -1;
  for (const [instr, name] of timeline.marks) {
    const at = Math.max(x(instr / timeline.instructions * n), end);
    if (at + c.measureText(name).width > w) continue;
    c.fillText(name, at, h - bottom + 6);
    end = at + c.measureText(name).width + 10;
  }
  if (now.program === 0 && now.instruction !== null) {
    const at = x(now.instruction / timeline.instructions * n);
    c.strokeStyle = colour("cursor");
    c.lineWidth = 2;
    c.beginPath(); c.moveTo(at, top - 4); c.lineTo(at, h - bottom + 3); c.stroke();
  }
}

function showTimeline() {
  if (!timeline || !timeline.tiers || !state) return;
  const now = state.now, holder = byId("tiers");
  setText(byId("where"), `${state.state === "ended" || state.state === "gone" ? state.state : now.part}` +
    (now.instruction === null ? "" : `, instruction ${countText(now.instruction)} of ${countText(timeline.instructions)}${now.estimated ? " (estimated by the clock)" : ""}`));
  for (const [name, classes] of Object.entries(timeline.tiers)) {
    let canvas = byId(`tier-${name}`);
    if (!canvas) {
      holder.append(element("p", "", "read"), element("canvas"));
      canvas = holder.lastElementChild;
      canvas.id = `tier-${name}`;
      canvas.setAttribute("role", "img");
    }
    const tier = now.tiers[name], text = `${name}: ${bytesText(tier.planned_now)} now, ${bytesText(tier.planned_peak)} at its fullest, arena ${bytesText(tier.arena)}`;
    setText(canvas.previousElementSibling, text);
    canvas.setAttribute("aria-label", text);
    if (canvas.clientWidth) paintTier(canvas, classes, now);
  }
  const there = CLASSES.filter(k => Object.values(timeline.tiers).some(t => t[k]));
  byId("legend").replaceChildren(...there.map(k => {
    const li = element("li"), sum = Object.values(now.tiers).reduce((s, t) => s + (t.classes[k] || 0), 0);
    li.append(element("span", "", `swatch ${k}`), `${k} ${sum ? bytesText(sum) : ""}`);
    return li;
  }));
}

/* ---- the state ---- */

const healthKind = h => h === "warning" ? "warn" : h === "critical" || h === "emergency" ? "bad" : "good";

function figure(name, text, small) {
  const div = element("div"), dd = element("dd", text);
  if (small) dd.append(element("small", small));
  div.append(element("dt", name), dd);
  return div;
}

function showFigures() {
  const p = state.progress, r = state.run;
  byId("figures").replaceChildren(
    figure("loss", p.loss === null ? "none" : p.loss.toFixed(4), p.eval ? `evaluated ${numberText(p.eval.loss)}` : `gradient norm ${numberText(p.grad_norm)}`),
    figure("speed", `${rateText(p.rate)} ${r.rate_unit}`, `predicted ${rateText(r.rate_predicted)}`),
    figure("step", p.step_ms === null ? "" : durationText(p.step_ms / 1e3), `predicted ${durationText((r.step_ms_predicted || 0) / 1e3)}`),
    figure("learning rate", numberText(p.lr), `MFU ${p.mfu === null ? "" : (100 * p.mfu).toFixed(1)} %`),
    figure(r.unit, countText(p.units), `epoch ${p.epoch.toFixed(2)}`));
}

function showMachine() {
  const head = element("tr"), rows = Object.entries(state.memory).map(([name, m]) => {
    const tr = element("tr"), health = element("td", m.health, healthKind(m.health));
    tr.append(element("td", m.whose || name), health, ...[m.own, m.needs, m.budget, m.others, m.free, m.total].map(n => element("td", n === null ? "none" : bytesText(n))));
    return tr;
  });
  for (const t of ["memory", "health", "run holds", "planned", "budget", "others", "free", "of"]) head.append(element("th", t));
  byId("memory").replaceChildren(head, ...rows);
  setText(byId("pressure"), state.pressure_some === null ? "" : `waiting for memory in the last ten seconds: some ${state.pressure_some.toFixed(0)} %, all ${state.pressure_full.toFixed(0)} %`);
}

function showAlerts() {
  byId("alerts").hidden = state.alerts.length === 0;
  byId("alert-list").replaceChildren(...state.alerts.map(a => element("li", `${a.level}: ${a.text}`, healthKind(a.level))));
  byId("remedies").hidden = !state.remedies;
  setText(byId("remedies"), state.remedies || "");
}

function show() {
  const p = state.progress, r = state.run, over = state.state === "ended" || state.state === "gone";
  document.title = `${p.step}/${p.n_steps} ${p.loss === null ? "" : p.loss.toFixed(3)} · Snug`;
  setText(byId("title"), r.model || "Snug");
  setText(byId("subtitle"), `${countText(r.params)} parameters, ${r.precision}; ${r.device}`);
  setText(byId("state"), state.state);
  byId("state").className = `badge ${state.state === "gone" || (over && state.message) ? "bad" : ""}`;
  setText(byId("health"), over ? "" : state.health);
  byId("health").className = `badge ${healthKind(state.health)}`;
  byId("progress").value = p.n_steps ? p.step / p.n_steps : 0;
  setText(byId("steps"), `step ${countText(p.step)} of ${countText(p.n_steps)}` + (p.eta_s > 0 ? `, ${durationText(p.eta_s)} left` : "") + (state.message ? `. ${state.message}` : ""));
  byId("pause").setAttribute("aria-pressed", String(state.paused));
  setText(byId("pause"), state.paused ? "Go on" : "Pause");
  for (const id of ["save", "pause", "stop", "set-budget"]) byId(id).disabled = over;
  showFigures();
  showAlerts();
  showMachine();
  showTimeline();
  byId("events").replaceChildren(...state.events.slice().reverse().map(e => {
    const li = element("li");
    li.append(element("time", new Date(1000 * e.time).toLocaleTimeString()), `step ${countText(e.step)}: ${e.text}`);
    return li;
  }));
}

function showSamples(samples) {
  byId("samples").hidden = samples.length === 0;
  byId("sample-list").replaceChildren(...samples.slice().reverse().map(s => {
    const li = element("li"), text = element("p");
    text.append(element("strong", s.prompt), s.text);
    li.append(element("small", `step ${countText(s.step)}, ${new Date(1000 * s.time).toLocaleTimeString()}`), text);
    return li;
  }));
}

/* ---- the server ---- */

const get = path => fetch(path).then(r => r.ok ? r.json() : null);

async function takeCurve() {
  if (performance.now() - curveAt < CURVE_MS || state.progress.step === curveStep) return;
  curveAt = performance.now();
  curveStep = state.progress.step;
  curve = await get("curve") || curve;
  showCurve();
}

async function takeSamples() {
  if (state.samples === samplesSeen) return;
  const seen = state.samples, samples = await get("samples");
  if (!samples) return;
  samplesSeen = seen;
  showSamples(samples);
}

async function take(text) {
  const next = JSON.parse(text);
  heardAt = performance.now();
  setText(byId("link"), "");
  if (!next.run) return;
  state = next;
  const id = `${state.run.id} ${state.run.changes}`;
  if (id !== runId) { // another run in the folder, or another plan of it
    runId = id;
    curveStep = -1;
    samplesSeen = -1;
    timeline = await get("timeline");
    byId("tiers").replaceChildren();
    byId("config").textContent = await fetch("config").then(r => r.text());
  }
  show();
  await takeCurve();
  await takeSamples();
}

function listen() {
  const events = new EventSource("events");
  events.addEventListener("state", e => take(e.data).catch(() => {}));
  setInterval(() => { if (performance.now() - heardAt > SILENT_MS) setText(byId("link"), "nothing is heard from the server"); }, 1000);
}

async function ask(what, headers = {}) {
  if (!token) { askForToken(`a token is needed`); return; }
  const answer = await fetch(what, {method: "POST", headers: {"X-Snug-Token": token, ...headers}}).catch(() => null);
  const said = answer ? (await answer.text()).trim() : "the server does not answer";
  if (answer && answer.status === 403) askForToken(said);
  else setText(byId("said"), `${what}: ${said}`);
}

function askForToken(why) {
  setText(byId("said"), why);
  byId("token-form").hidden = false;
  byId("token").focus();
}

byId("token-form").addEventListener("submit", e => {
  e.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  byId("token-form").hidden = true;
  byId("token").value = "";
  setText(byId("said"), "");
});
byId("budget-form").addEventListener("submit", e => {
  e.preventDefault();
  ask("budget", {"X-Snug-Budget": byId("budget").value.trim().replace(/[^ -~]+/g, " ")});
});
byId("save").addEventListener("click", () => ask("save"));
byId("stop").addEventListener("click", () => ask("stop"));
byId("pause").addEventListener("click", () => ask(state && state.paused ? "resume" : "pause"));
const repaint = () => { showCurve(); showTimeline(); };
addEventListener("resize", repaint);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
fetch("state").then(r => r.text()).then(take).catch(() => {});
listen();
})();
