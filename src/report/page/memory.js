/* memory.js: the memory of a tier over the step: stacked by class, or each buffer at its address. */

/* Colours a column of pixels stands for: the fullest instant of those it covers. */
function fullestIn(tier, from, to) {
  let best = from;
  for (let k = from + 1; k <= to; k++) if (tier.total[k] > tier.total[best]) best = k;
  return best;
}

class MemoryPanel extends Panel {
  constructor(plan, tier) {
    const name = tier.name[0].toUpperCase() + tier.name.slice(1);
    super(`${name} memory`, "", 300, `${tier.name} memory over the step; arrow keys walk through it`);
    this.plan = plan;
    this.tier = tier;
    this.bySize = [...tier.roots].sort((a, b) => plan.buffers.bytes[b] - plan.buffers.bytes[a]);
    this.span = null; // of addresses: what is shown, when not all
    this.setLegend(plan.stack.filter(c => tier.used[c]).reverse()
      .map(c => [plan.classes[c], `var(--${plan.classes[c]})`]));
    const budget = tier.arena.budget;
    const room = budget === null ? "" : `, ${bytesText(Math.abs(budget - tier.arena.bytes))} ` +
      (budget >= tier.arena.bytes ? "to spare" : "too little");
    this.note.textContent = `arena ${bytesText(tier.arena.bytes)}${room}; fullest in ${instrText(plan, tier.peakAt)}`;
  }

  /* The budget belongs into the drawing unless it is far away. */
  top() {
    const {arena, peak} = this.tier;
    const most = Math.max(peak, view.byAddress ? arena.bytes : 0);
    return arena.budget !== null && arena.budget < 1.6 * most ? 1.05 * Math.max(most, arena.budget) : 1.08 * most;
  }

  bounds() {
    return view.byAddress && this.span ? this.span : [0, this.top()];
  }

  toY(n, box) {
    const [lo, hi] = this.bounds();
    return box.top + box.height * (1 - (n - lo) / (hi - lo));
  }

  draw(c, box) {
    drawYAxis(c, box, ...this.bounds());
    c.save();
    c.beginPath();
    c.rect(box.left, box.top, box.width, box.height);
    c.clip();
    if (view.byAddress) this.drawBuffers(c, box);
    else this.drawStack(c, box);
    this.drawBudget(c, box);
    c.restore();
    this.drawPeak(c, box);
    drawXAxis(c, box, true);
  }

  /* For each pixel the instruction to show. */
  columns(box) {
    const n = Math.ceil(box.width);
    const shown = new Int32Array(n);
    let from = firstAt(view.lo);
    for (let i = 0; i < n; i++) {
      const to = Math.max(Math.min(instrAt(fromPixel(box.left + i + 1, box)), this.plan.n - 1), from);
      shown[i] = fullestIn(this.tier, from, to);
      from = to;
    }
    return shown;
  }

  /* From the top class down: each covers what lies under it, so that no seams show. */
  drawStack(c, box) {
    const shown = this.columns(box);
    const sums = Float64Array.from(shown, k => this.tier.total[k]);
    const ground = box.top + box.height;
    c.save();
    c.beginPath(); // the axis may go on behind the end of this clock
    c.rect(box.left, box.top, toPixel(xOf(this.plan.n), box) - box.left, box.height);
    c.clip();
    for (const kind of [...this.plan.stack].reverse()) {
      if (!this.tier.used[kind]) continue;
      c.fillStyle = colour(this.plan.classes[kind]);
      c.beginPath();
      c.moveTo(box.left, ground);
      for (let i = 0; i < shown.length; i++) {
        const y = this.toY(sums[i], box);
        c.lineTo(box.left + i, y);
        c.lineTo(box.left + i + 1, y);
        sums[i] -= this.tier.byClass[kind][shown[i]];
      }
      c.lineTo(box.left + shown.length, ground);
      c.fill();
    }
    c.restore();
    if (this.item) this.drawCursor(c, box, this.item.at);
  }

  drawCursor(c, box, k) {
    const x = (toPixel(xOf(k), box) + toPixel(xOf(k + 1), box)) / 2;
    c.strokeStyle = colour("ink");
    c.beginPath();
    c.moveTo(x, box.top);
    c.lineTo(x, box.top + box.height);
    c.stroke();
  }

  /* Left, top, width and height of a buffer on the canvas. */
  rectangle(b, box) {
    const {first, last, offset, bytes} = this.plan.buffers;
    const x = toPixel(xOf(first[b]), box);
    const y = this.toY(offset[b] + bytes[b], box);
    return [x, y, toPixel(xOf(last[b] + 1), box) - x, this.toY(offset[b], box) - y];
  }

  drawBuffers(c, box) {
    const {classes, buffers} = this.plan;
    const edge = colour("ground");
    for (const b of this.bySize) {
      const [x, y, width, height] = this.rectangle(b, box);
      if (x > box.left + box.width || x + width < box.left || y > box.top + box.height || y + height < box.top) continue;
      c.fillStyle = colour(classes[buffers.class[b]]);
      const top = Math.floor(y); // whole pixels: many thin ones beside each other stay solid
      c.fillRect(x, top, Math.max(width, 0.6), Math.ceil(y + height) - top);
      if (width > 6 && height > 7) {
        c.strokeStyle = edge;
        c.strokeRect(x, y, width, height);
        this.drawName(c, b, x, y, width, height, box);
      } else if (height > 3) { // a hint of where the next one begins
        c.fillStyle = edge;
        c.globalAlpha = 0.35;
        c.fillRect(x, y, width, 1);
        c.globalAlpha = 1;
      }
    }
    if (this.item) {
      c.strokeStyle = colour("ink");
      c.lineWidth = 2;
      c.strokeRect(...this.rectangle(this.item.buffer, box));
      c.lineWidth = 1;
    }
  }

  drawName(c, b, x, y, width, height, box) {
    const left = Math.max(x, box.left);
    const room = Math.min(x + width, box.left + box.width) - left - 8;
    if (room < 50 || height < 15) return;
    const text = this.plan.names[this.plan.buffers.name[b]];
    if (c.measureText(text).width > room) return;
    c.textAlign = "left";
    c.textBaseline = "middle";
    c.fillStyle = inkOn(colour(this.plan.classes[this.plan.buffers.class[b]]));
    c.fillText(text, left + 5, Math.min(Math.max(y, box.top) + 9, y + height / 2));
  }

  drawBudget(c, box) {
    const {budget, whole, given} = this.tier.arena;
    if (budget === null) return;
    const y = this.toY(budget, box);
    c.strokeStyle = c.fillStyle = colour("warn");
    c.setLineDash([8, 5]);
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(box.left, y);
    c.lineTo(box.left + box.width, y);
    c.stroke();
    c.setLineDash([]);
    c.lineWidth = 1;
    const beside = whole - budget > 0.01 * whole ? `, ${bytesText(whole - budget)} of it beside the arena` : "";
    const short = `${given ? "budget" : "can be had:"} ${bytesText(whole)}`;
    const text = c.measureText(short + beside).width < 0.6 * box.width ? short + beside : short;
    const width = c.measureText(text).width;
    c.textAlign = "right";
    c.textBaseline = "middle";
    const above = y - 10 > box.top + 6 ? y - 10 : y + 11;
    c.fillStyle = colour("ground");
    c.globalAlpha = 0.8;
    c.fillRect(box.left + box.width - width - 10, above - 8, width + 8, 16);
    c.globalAlpha = 1;
    c.fillStyle = colour("warn");
    c.fillText(text, box.left + box.width - 6, above);
  }

  drawPeak(c, box) {
    const k = this.tier.peakAt;
    const x = (toPixel(xOf(k), box) + toPixel(xOf(k + 1), box)) / 2;
    if (x < box.left || x > box.left + box.width) return;
    const y = view.byAddress ? box.top : this.toY(this.tier.peak, box);
    if (view.byAddress) this.drawCursor(c, box, k);
    c.fillStyle = colour("ground");
    c.strokeStyle = colour("ink");
    c.lineWidth = 1.6;
    c.beginPath();
    c.arc(x, y, 4.5, 0, 7);
    c.fill();
    c.stroke();
    c.lineWidth = 1;
  }

  /* ---- what is under the pointer ---- */

  hit(x, y) {
    const box = this.box();
    if (x < box.left || x > box.left + box.width || y < box.top || y > box.top + box.height) return null;
    return view.byAddress ? this.hitBuffer(x, y, box) : this.hitStack(x, y, box);
  }

  /* The smallest that the pointer touches: large ones are easy to point at elsewhere. */
  hitBuffer(x, y, box) {
    for (let i = this.bySize.length; i-- > 0;) {
      const [left, top, width, height] = this.rectangle(this.bySize[i], box);
      if (x >= left && x <= left + Math.max(width, 1) && y >= top && y <= top + Math.max(height, 1))
        return this.itemOf(this.bySize[i], instrAt(fromPixel(x, box)));
    }
    return null;
  }

  /* One object per buffer, so that the same is the same. */
  itemOf(buffer, k) {
    const content = contentAt(this.plan, buffer, k);
    return this.item && this.item.buffer === buffer && this.item.content === content ? this.item : {buffer, content};
  }

  hitStack(x, y, box) {
    const column = Math.min(Math.max(Math.floor(x - box.left), 0), Math.ceil(box.width) - 1);
    const from = firstAt(fromPixel(box.left + column, box));
    const to = Math.max(Math.min(instrAt(fromPixel(box.left + column + 1, box)), this.plan.n - 1), from);
    const at = fullestIn(this.tier, from, to);
    let sum = 0;
    for (const kind of this.plan.stack) {
      sum += this.tier.byClass[kind][at];
      if (this.tier.byClass[kind][at] > 0 && this.toY(sum, box) <= y) return {at, kind};
    }
    return {at, kind: -1};
  }

  describe(item) {
    return "buffer" in item ? describeBuffer(this.plan, item) : this.describeInstant(item);
  }

  describeInstant({at, kind}) {
    const {plan, tier} = this;
    const rows = [["when", `${plan.hasTimes ? timeText((plan.clocks[view.axis] || plan.clock)[at]) + ", " : ""}instruction ${countText(at)}`],
                  ["in", instrText(plan, at)], ["alive", bytesText(tier.total[at])]];
    for (const c of [...plan.stack].reverse())
      if (tier.byClass[c][at] > 0)
        rows.push([plan.classes[c], `${bytesText(tier.byClass[c][at])}  ${percentText(tier.byClass[c][at], tier.total[at])}`]);
    if (kind >= 0) rows.push(...this.largestOf(at, kind));
    const title = kind < 0 ? "all classes" : plan.classes[kind];
    return {title, colour: kind < 0 ? null : colour(plan.classes[kind]), rows};
  }

  largestOf(at, kind) {
    const {buffers, names} = this.plan;
    const alive = this.bySize.filter(b => buffers.class[b] === kind && buffers.first[b] <= at && at <= buffers.last[b]);
    return alive.slice(0, 3).map((b, i) => [i ? "" : `largest of ${alive.length}`, `${names[buffers.name[contentAt(this.plan, b, at)]]}, ${bytesText(buffers.bytes[b])}`]);
  }

  place(item) {
    const box = this.box();
    if (!("buffer" in item)) return [toPixel(xOf(item.at), box), box.top + box.height / 2];
    const [x, y, width, height] = this.rectangle(item.buffer, box);
    const inside = (v, lo, hi) => Math.min(Math.max(v, lo), hi);
    return [inside(x + width / 2, box.left, box.left + box.width), inside(y + height / 2, box.top, box.top + box.height)];
  }

  /* Instants are walked in pixels, buffers by size. */
  step(item, by) {
    if (!view.byAddress) {
      const k = item ? item.at : this.tier.peakAt - by;
      const box = this.box();
      const next = item ? Math.max(Math.abs(instrAt(xOf(k) + by * (view.hi - view.lo) / box.width * 4) - k), 1) : 1;
      return {at: Math.min(Math.max(k + by * next, 0), this.plan.n - 1), kind: -1};
    }
    const i = item ? this.bySize.indexOf(item.buffer) + by : 0;
    const buffer = this.bySize[Math.min(Math.max(i, 0), this.bySize.length - 1)];
    return {buffer, content: buffer};
  }

  selectsHeight() {
    return view.byAddress;
  }

  zoomTo(chosen) {
    if (view.byAddress) {
      const box = this.box();
      const [lo, hi] = this.bounds();
      const at = y => lo + (1 - (y - box.top) / box.height) * (hi - lo);
      const ends = [at(Math.max(chosen.y0, chosen.y1)), at(Math.min(chosen.y0, chosen.y1))];
      if (ends[1] - ends[0] > 512) this.span = ends;
    }
    super.zoomTo(chosen);
  }

  reset() {
    this.span = null;
    super.reset();
  }

  /* Brings a buffer into sight. */
  show(b) {
    const {first, last, offset, bytes} = this.plan.buffers;
    const margin = Math.max(bytes[b], this.tier.arena.bytes / 200);
    const width = Math.max(xOf(last[b] + 1) - xOf(first[b]), (xEnd()) / 200);
    this.span = [Math.max(offset[b] - margin, 0), offset[b] + bytes[b] + margin];
    this.item = {buffer: b, content: b};
    viewShow(xOf(first[b]) - width / 4, xOf(last[b] + 1) + width / 4);
  }
}

/* ---- words about a buffer ---- */

/* content: what its memory holds where the pointer is. */
function describeBuffer(plan, {buffer, content}) {
  const {buffers, names} = plan;
  const first = buffers.first[buffer];
  const last = buffers.last[buffer];
  const isWhole = first === 0 && last >= plan.n - 1;
  const clock = plan.clocks[view.axis] || plan.clock;
  const lifetime = plan.hasTimes ? `${timeText(clock[last + 1] - clock[first])}, ` : "";
  const rows = [
    ["class", `${plan.classes[buffers.class[buffer]]}, ${plan.tiers[buffers.tier[buffer]]}`],
    ["size", `${bytesText(buffers.bytes[buffer])} (${countText(buffers.bytes[buffer])} bytes)`],
    ["address", `${bytesText(buffers.offset[buffer])} into the arena`],
    ["alive", isWhole ? "the whole step" : `${lifetime}instructions ${countText(first)} to ${countText(last)}`],
  ];
  if (content !== buffer) rows.push(["in place of", names[buffers.name[buffer]]]);
  if (!isWhole) rows.push(["made by", instrText(plan, buffers.first[content])], ["last used by", instrText(plan, last)]);
  rows.push(["why", plan.purposes[buffers.purpose[content]]]);
  return {title: names[buffers.name[content]], colour: colour(plan.classes[buffers.class[buffer]]), rows};
}
