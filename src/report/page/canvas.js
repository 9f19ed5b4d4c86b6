/* canvas.js: what all drawings share: size, axes, pointer, touch and keys, the tip.
 *
 * A panel has
 *     draw(c, box)          paints inside box = {left, top, width, height}, in CSS pixels
 *     hit(x, y)             what is there, or null
 *     describe(item)        {title, colour, rows: [[label, text], ...]}
 *     place(item)           [x, y] in pixels, for a tip that no pointer asked for
 *     step(item, by)        the next (1) or last (-1) item for the arrow keys; item may be null
 */

const colours = new Map();

/* A colour of the style sheet: they differ between light and dark. */
function colour(name) {
  if (!colours.has(name))
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888");
  return colours.get(name);
}

/* What can be read on a colour given as #rrggbb. */
function inkOn(shade) {
  const [r, g, b] = [1, 3, 5].map(i => parseInt(shade.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 150 ? "#10151a" : "#fff";
}

/* ---- the tip ---- */

function showTip(description, x, y) {
  const tip = byId("tip");
  const rows = description.rows.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]);
  const title = element("strong", {}, description.colour ? swatch(description.colour) : null,
                        element("span.name", {}, description.title));
  tip.replaceChildren(title, element("dl", {}, ...rows));
  tip.hidden = false;
  const {width, height} = tip.getBoundingClientRect();
  const right = x + 16 + width < innerWidth ? x + 16 : x - 16 - width;
  tip.style.left = `${Math.max(right, 8)}px`;
  tip.style.top = `${Math.min(Math.max(y - height / 2, 8), Math.max(innerHeight - height - 8, 8))}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

/* ---- axes ---- */

/* Steps of 1, 2, 5 in powers of ten: about `most` of them. */
function decimalStep(span, most) {
  const rough = span / Math.max(most, 1);
  const unit = 10 ** Math.floor(Math.log10(rough));
  return unit * [1, 2, 5, 10].find(x => x * unit >= rough * 0.999);
}

/* The same for times: from five minutes on they are minutes. */
function timeStep(span, most) {
  return span > 5 * MINUTE ? MINUTE * decimalStep(span / MINUTE, most) : decimalStep(span, most);
}

/* Steps that read well in powers of 1024. */
function binaryStep(span, most) {
  let step = 1;
  while (span / step > most) step *= 2;
  return step;
}

function drawXAxis(c, box, bottomRoom) {
  const y = box.top + box.height;
  const step = (isTime() ? timeStep : decimalStep)(view.hi - view.lo, box.width / 70);
  c.textBaseline = "top";
  c.textAlign = "center";
  c.fillStyle = colour("soft");
  c.strokeStyle = colour("line");
  c.beginPath();
  for (let x = Math.ceil(view.lo / step) * step; x <= view.hi; x += step) {
    const at = toPixel(x, box);
    c.moveTo(at, y);
    c.lineTo(at, y + 4);
    const text = isTime() ? timeText(x, step) : countText(x);
    const half = c.measureText(text).width / 2;
    c.fillText(text, Math.min(Math.max(at, box.left + half), box.left + box.width - half), y + 7);
  }
  c.stroke();
  if (bottomRoom) drawMarks(c, box);
}

/* The names of the parts, where there is room for them before the next begins. */
function drawMarks(c, box) {
  const end = box.left + box.width;
  c.textAlign = "left";
  c.strokeStyle = colour("soft");
  c.fillStyle = colour("ink");
  c.setLineDash([2, 4]);
  const places = view.plan.marks.map(mark => toPixel(xOf(mark.at), box));
  view.plan.marks.forEach((mark, i) => {
    const x = places[i];
    if (x > end) return;
    if (x > box.left + 1) {
      c.beginPath();
      c.moveTo(x, box.top);
      c.lineTo(x, box.top + box.height + 4);
      c.stroke();
    }
    const from = Math.max(x, box.left);
    const room = Math.min(i + 1 < places.length ? places[i + 1] : end, end) - from;
    if (c.measureText(mark.name).width < room) c.fillText(mark.name, from, box.top + box.height + 23);
  });
  c.setLineDash([]);
}

function drawYAxis(c, box, lo, hi) {
  const step = binaryStep(hi - lo, Math.max(box.height / 44, 2));
  c.textBaseline = "middle";
  c.textAlign = "right";
  c.strokeStyle = colour("grid");
  c.fillStyle = colour("soft");
  c.beginPath();
  for (let y = Math.ceil(lo / step) * step; y <= hi; y += step) {
    const at = box.top + box.height * (1 - (y - lo) / (hi - lo));
    c.moveTo(box.left, at);
    c.lineTo(box.left + box.width, at);
    c.fillText(bytesText(y), box.left - 7, at);
  }
  c.stroke();
}

function toPixel(x, box) {
  return box.left + (x - view.lo) / (view.hi - view.lo) * box.width;
}

function fromPixel(at, box) {
  return view.lo + (at - box.left) / box.width * (view.hi - view.lo);
}

/* ---- panels ---- */

const FONT = '12.5px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif';

class Panel {
  constructor(title, note, height, label) {
    this.height = height;
    this.item = null;
    this.pointers = new Map();
    this.canvas = element("canvas", {tabindex: "0", role: "img", "aria-label": label});
    this.note = element("p", {}, note);
    this.legend = element("ul.legend");
    this.section = element("section.panel", {},
      element("div.panel-head", {}, element("h3", {}, title), this.note), this.canvas, this.legend);
    byId("panels").append(this.section);
    this.listen();
    view.listeners.push(() => this.redraw());
    new ResizeObserver(() => this.redraw()).observe(this.canvas);
  }

  box() {
    const width = this.canvas.clientWidth;
    const left = width < 560 ? 66 : 84;
    return {left, top: 12, width: Math.max(width - left - 8, 20), height: this.height - 12 - this.bottom()};
  }

  bottom() {
    return 42;
  }

  setLegend(entries) {
    this.legend.replaceChildren(...entries.map(([name, shade]) => element("li", {}, swatch(shade), name)));
  }

  redraw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.paint();
    });
  }

  paint() {
    const scale = Math.min(window.devicePixelRatio || 1, 3);
    const width = this.canvas.clientWidth;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.width = Math.round(width * scale);
    this.canvas.height = Math.round(this.height * scale);
    const c = this.canvas.getContext("2d");
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.font = FONT;
    c.lineWidth = 1;
    this.draw(c, this.box());
    if (this.selection) this.paintSelection(c);
  }

  paintSelection(c) {
    const {x0, y0, x1, y1} = this.selection;
    const box = this.box();
    const [top, bottom] = this.selectsHeight() ? [Math.min(y0, y1), Math.max(y0, y1)] : [box.top, box.top + box.height];
    c.fillStyle = colour("shade");
    c.fillRect(Math.min(x0, x1), top, Math.abs(x1 - x0), bottom - top);
  }

  selectsHeight() {
    return false;
  }

  select(item, clientX, clientY) {
    const changed = item !== this.item;
    this.item = item;
    if (item === null) hideTip();
    else showTip(this.describe(item), clientX, clientY);
    if (changed || item !== null) this.redraw();
  }

  /* ---- pointers: hover, drag to zoom in, two fingers ---- */

  listen() {
    const at = e => {
      const r = this.canvas.getBoundingClientRect();
      return [e.clientX - r.left, e.clientY - r.top];
    };
    this.canvas.addEventListener("pointerdown", e => this.pointerDown(e, ...at(e)));
    this.canvas.addEventListener("pointermove", e => this.pointerMove(e, ...at(e)));
    for (const kind of ["pointerup", "pointercancel"])
      this.canvas.addEventListener(kind, e => this.pointerUp(e));
    this.canvas.addEventListener("pointerleave", e => {
      if (e.pointerType === "mouse" && !this.selection) this.select(null);
    });
    this.canvas.addEventListener("dblclick", () => this.reset());
    this.canvas.addEventListener("wheel", e => this.wheel(e, ...at(e)), {passive: false});
    this.canvas.addEventListener("keydown", e => this.key(e));
    this.canvas.addEventListener("blur", () => this.select(null));
  }

  pointerDown(e, x, y) {
    this.pointers.set(e.pointerId, x);
    if (e.pointerType === "mouse" && e.button === 0) {
      this.canvas.setPointerCapture(e.pointerId);
      this.drag = {x, y};
    } else if (this.pointers.size === 1) {
      this.select(this.hit(x, y), e.clientX, e.clientY);
    }
  }

  pointerMove(e, x, y) {
    if (this.pointers.size === 2 && this.pointers.has(e.pointerId)) {
      this.pinch(e.pointerId, x);
    } else if (this.drag) {
      if (Math.hypot(x - this.drag.x, y - this.drag.y) < 5) return;
      this.selection = {x0: this.drag.x, y0: this.drag.y, x1: x, y1: y};
      hideTip();
      this.redraw();
    } else {
      this.select(this.hit(x, y), e.clientX, e.clientY);
    }
  }

  pinch(id, x) {
    const [first, second] = [...this.pointers.values()];
    const before = Math.abs(first - second);
    this.pointers.set(id, x);
    const [a, b] = [...this.pointers.values()];
    const after = Math.abs(a - b);
    if (before > 8 && after > 8) viewZoom(before / after, fromPixel((a + b) / 2, this.box()));
  }

  pointerUp(e) {
    this.pointers.delete(e.pointerId);
    const chosen = this.selection;
    this.drag = this.selection = null;
    if (chosen) this.zoomTo(chosen);
  }

  zoomTo({x0, x1}) {
    const box = this.box();
    viewShow(fromPixel(Math.min(x0, x1), box), fromPixel(Math.max(x0, x1), box));
  }

  reset() {
    viewReset();
  }

  /* The page scrolls as pages do; with a key held, or sideways, the wheel is ours. */
  wheel(e, x) {
    if (e.ctrlKey || e.metaKey) viewZoom(Math.exp(e.deltaY / 300), fromPixel(x, this.box()));
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) viewPan(e.deltaX / this.box().width);
    else return;
    e.preventDefault();
  }

  key(e) {
    const moves = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1};
    if (e.key in moves) this.walk(moves[e.key]);
    else if (e.key === "+" || e.key === "=") viewZoom(0.6);
    else if (e.key === "-") viewZoom(1 / 0.6);
    else if (e.key === "PageDown") viewPan(0.5);
    else if (e.key === "PageUp") viewPan(-0.5);
    else if (e.key === "Home" || e.key === "0") this.reset();
    else if (e.key === "Escape") this.select(null);
    else return;
    e.preventDefault();
  }

  walk(by) {
    const item = this.step(this.item, by);
    if (item === null) return;
    const [x, y] = this.place(item);
    const r = this.canvas.getBoundingClientRect();
    this.select(item, r.left + x, r.top + y);
  }
}
