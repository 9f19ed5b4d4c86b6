/* lanes.js: what each queue does when; predicted and, after a run, measured. */

const LANE = 34; // pixels a lane takes

/* The work of one queue in the order it runs. */
function readLane(plan, queue, isMeasured) {
  const {instrs} = plan;
  const start = isMeasured ? instrs.measured_start : instrs.start;
  const length = isMeasured ? instrs.measured_ns : instrs.ns;
  const items = [];
  for (let k = 0; k < plan.n; k++) if (instrs.queue[k] === queue && isWork(plan, k)) items.push(k);
  items.sort((a, b) => start[a] - start[b] || a - b);
  const busy = items.reduce((sum, k) => sum + plan.repeats[k] * length[k], 0);
  return {queue, isMeasured, items: Int32Array.from(items), start, length, busy};
}

class LanesPanel extends Panel {
  constructor(plan) {
    const used = plan.queues.map((_, q) => q).filter(q => plan.instrs.queue.some((x, k) => x === q && isWork(plan, k)));
    const lanes = used.flatMap(q => (plan.hasMeasured ? [false, true] : [false]).map(m => readLane(plan, q, m)));
    super("Queues", "", 12 + lanes.length * LANE + 42, "what each queue does over the step; arrow keys walk through its instructions");
    this.plan = plan;
    this.lanes = lanes;
    const parts = new Set([...plan.instrs.part].filter((_, k) => isWork(plan, k)).map(p => plan.names[p]));
    this.setLegend([...parts].map(p => [p === "in" || p === "out" ? `copies ${p}` : p, `var(--part-${p})`]));
    this.note.textContent = plan.isOneQueue && used.length > 1
      ? "this device runs them one after the other" : "they run side by side";
  }

  /* Left and right end of an instruction. */
  ends(lane, k, box) {
    if (!isTime()) return [toPixel(k, box), toPixel(k + 1, box)];
    return [toPixel(lane.start[k], box), toPixel(lane.start[k] + lane.length[k], box)];
  }

  draw(c, box) {
    this.lanes.forEach((lane, i) => this.drawLane(c, box, lane, box.top + i * LANE));
    drawXAxis(c, box, true);
  }

  drawLane(c, box, lane, top) {
    const height = LANE - 8;
    c.fillStyle = colour("sheet");
    c.fillRect(box.left, top, box.width, height);
    c.fillStyle = colour("ink");
    c.textAlign = "right";
    c.textBaseline = "middle";
    const name = this.plan.queues[lane.queue];
    const share = this.plan.hasTimes ? `${Math.round(100 * lane.busy / this.plan.step)} %` : "";
    c.fillText(name, box.left - 7, top + height / 2 - 7);
    c.fillStyle = colour("soft");
    c.fillText(this.plan.hasMeasured ? (lane.isMeasured ? "measured" : "predicted") : share, box.left - 7, top + height / 2 + 7);
    c.save();
    c.beginPath();
    c.rect(box.left, top, box.width, height);
    c.clip();
    this.drawItems(c, box, lane, top, height);
    c.restore();
  }

  /* Neighbours of one colour that would be thinner than a pixel are painted together. */
  drawItems(c, box, lane, top, height) {
    let run = null;
    const flush = () => {
      if (run) c.fillRect(run.from, top, Math.max(run.to - run.from, 0.7), height);
      run = null;
    };
    for (let i = this.firstIn(lane); i < lane.items.length; i++) {
      const k = lane.items[i];
      const [from, to] = this.ends(lane, k, box);
      if (from > box.left + box.width) break;
      const shade = colour(`part-${this.plan.names[this.plan.instrs.part[k]]}`);
      if (run && (run.shade !== shade || from > run.to + 0.5 || to - from > 3)) flush();
      if (!run) {
        c.fillStyle = shade;
        run = {from, to, shade};
      }
      run.to = Math.max(run.to, to);
      if (to - from > 3) {
        run.to -= 0.7; // a gap between those that can be told apart
        flush();
        this.drawName(c, k, from, to, top, height, box);
      }
    }
    flush();
    if (this.item && this.item.lane === lane) {
      const [from, to] = this.ends(lane, this.item.k, box);
      c.strokeStyle = colour("ink");
      c.lineWidth = 2;
      c.strokeRect(from, top + 1, Math.max(to - from, 2), height - 2);
      c.lineWidth = 1;
    }
  }

  drawName(c, k, from, to, top, height, box) {
    const left = Math.max(from, box.left);
    const room = Math.min(to, box.left + box.width) - left - 8;
    if (room < 34) return;
    const text = this.plan.names[this.plan.instrs.name[k]].split(" ")[0];
    if (c.measureText(text).width > room) return;
    c.fillStyle = inkOn(colour(`part-${this.plan.names[this.plan.instrs.part[k]]}`));
    c.textAlign = "left";
    c.fillText(text, left + 4, top + height / 2);
  }

  /* The first item that may be in sight. */
  firstIn(lane) {
    let lo = 0;
    let hi = lane.items.length;
    while (lo < hi) {
      const middle = (lo + hi) >> 1;
      const k = lane.items[middle];
      if ((isTime() ? lane.start[k] + lane.length[k] : k + 1) < view.lo) lo = middle + 1;
      else hi = middle;
    }
    return lo;
  }

  hit(x, y) {
    const box = this.box();
    const lane = this.lanes[Math.floor((y - box.top) / LANE)];
    if (!lane || x < box.left || x > box.left + box.width || (y - box.top) % LANE > LANE - 8) return null;
    let best = null;
    let distance = 3;
    for (let i = this.firstIn(lane); i < lane.items.length; i++) {
      const [from, to] = this.ends(lane, lane.items[i], box);
      if (from > x + 3) break;
      const far = Math.max(from - x, x - to, 0);
      if (far < distance) {
        distance = far;
        best = lane.items[i];
      }
    }
    return best === null ? null : this.itemOf(lane, best);
  }

  itemOf(lane, k) {
    return this.item && this.item.lane === lane && this.item.k === k ? this.item : {lane, k};
  }

  describe({lane, k}) {
    const {plan} = this;
    const {instrs, names} = plan;
    const rows = [["part", names[instrs.part[k]] + (instrs.block[k] >= 0 ? `, block ${instrs.block[k]}` : "")],
                  ["queue", plan.queues[instrs.queue[k]]], ["instruction", countText(k)]];
    if (plan.hasTimes) rows.push(["predicted", `${timeText(instrs.ns[k])}, from ${timeText(instrs.start[k])}`]);
    if (plan.hasMeasured) rows.push(["measured", `${timeText(instrs.measured_ns[k])}, from ${timeText(instrs.measured_start[k])}`]);
    if (instrs.kernel[k] >= 0) rows.push(["kernel", names[instrs.kernel[k]]]);
    const made = this.madeBy(k);
    if (made.length) rows.push(["makes", made.join(", ")]);
    return {title: names[instrs.name[k]], colour: colour(`part-${names[instrs.part[k]]}`), rows};
  }

  madeBy(k) {
    const {buffers, names} = this.plan;
    const made = [];
    for (let b = 0; b < buffers.first.length && made.length < 4; b++)
      if (buffers.first[b] === k && buffers.last[b] < this.plan.n - 1)
        made.push(`${names[buffers.name[b]]} (${bytesText(buffers.bytes[b])})`);
    return made;
  }

  place({lane, k}) {
    const box = this.box();
    const [from, to] = this.ends(lane, k, box);
    return [Math.min(Math.max((from + to) / 2, box.left), box.left + box.width), box.top + this.lanes.indexOf(lane) * LANE + LANE / 2];
  }

  step(item, by) {
    const lane = item ? item.lane : this.lanes[0];
    const i = item ? lane.items.indexOf(item.k) + by : this.firstIn(lane);
    return lane.items.length ? {lane, k: lane.items[Math.min(Math.max(i, 0), lane.items.length - 1)]} : null;
  }
}
