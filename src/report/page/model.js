/* model.js: the plan's columns, and what follows from them: when each instruction begins, who owns
 * which bytes, how many bytes of each class are alive when. */

const ALIGN = 256; // of every buffer

/* The columns of a table as typed arrays; all numbers are whole and below 2^53. */
function readTable(table, wide) {
  const columns = {};
  for (const [name, values] of Object.entries(table))
    columns[name] = wide.includes(name) ? Float64Array.from(values) : Int32Array.from(values);
  return columns;
}

/* When compute has come to instruction k: the clock by which memory is taken and given back. Copies
 * run beside it, and their own starts are in the lanes. Where all queues are one, every start
 * counts. Entry n is the end. */
function clockOf(instrs, starts, end, isOneQueue) {
  const n = starts.length;
  const clock = new Float64Array(n + 1);
  let now = 0;
  for (let k = 0; k < n; k++) {
    if (isOneQueue || instrs.queue[k] === 0) now = Math.max(now, starts[k]);
    clock[k] = now;
  }
  clock[n] = Math.max(now, end);
  return clock;
}

/* Do instructions of two queues ever run at the same time? */
function runsOneByOne(starts, lengths) {
  let end = 0;
  for (let k = 0; k < starts.length; k++) {
    if (lengths[k] > 0 && starts[k] < end - 1) return false;
    end = Math.max(end, starts[k] + lengths[k]);
  }
  return true;
}

/* A tier: its buffers with memory of their own, and bytes by class at each instruction. */
function readTier(plan, index) {
  const {buffers, n} = plan;
  const tier = {index, name: plan.tiers[index], arena: plan.arenas[index], roots: [], peak: 0, peakAt: 0};
  tier.byClass = plan.classes.map(() => new Float64Array(n + 1));
  tier.total = new Float64Array(n + 1);
  for (let b = 0; b < buffers.tier.length; b++) {
    if (buffers.tier[b] !== index || buffers.into[b] >= 0 || buffers.bytes[b] === 0) continue;
    const size = Math.ceil(buffers.bytes[b] / ALIGN) * ALIGN;
    tier.roots.push(b);
    tier.byClass[buffers.class[b]][buffers.first[b]] += size;
    tier.byClass[buffers.class[b]][buffers.last[b] + 1] -= size;
  }
  for (let k = 0; k < n; k++) {
    for (const column of tier.byClass) {
      if (k > 0) column[k] += column[k - 1];
      tier.total[k] += column[k];
    }
    if (tier.total[k] > tier.peak) {
      tier.peak = tier.total[k];
      tier.peakAt = k;
    }
  }
  tier.used = plan.classes.map((_, c) => tier.byClass[c].some(x => x > 0));
  return tier;
}

/* Where parts of the step begin: sections, and in each where the backward pass does; and what steps do not run. */
function findMarks(plan) {
  const marks = [];
  const {instrs, names} = plan;
  let occasion = "";
  for (const section of plan.sections) {
    let part = "";
    const isNew = section.occasion !== occasion;
    occasion = section.occasion;
    if (occasion) {
      if (isNew) marks.push({at: section.first, name: occasion});
      continue;
    }
    const parts = instrs.part.subarray(section.first, section.first + section.n);
    const hasForward = parts.some(x => names[x] === "forward");
    for (let k = section.first; k < section.first + section.n; k++) {
      // An update before the forward pass is of the step before, and runs in this one's.
      const here = names[instrs.part[k]] === "update" && hasForward ? "forward" : names[instrs.part[k]];
      if (!["begin", "forward", "backward", "update"].includes(here)) continue;
      if (part === "" || (here === "backward" && part === "forward")) {
        const times = section.repeats > 1 && part === "" ? ` × ${section.repeats}` : "";
        marks.push({at: part === "" ? section.first : k, name: here + times});
        part = here;
      }
    }
  }
  return marks;
}

/* Buffers that took over a root's memory, oldest first. */
function findShared(buffers) {
  const shared = new Map();
  for (let b = 0; b < buffers.into.length; b++) {
    let root = b;
    while (buffers.into[root] >= 0) root = buffers.into[root];
    if (root !== b) shared.set(root, [...(shared.get(root) || []), b]);
  }
  return shared;
}

function readPlan(raw) {
  const plan = {...raw};
  plan.instrs = readTable(raw.instrs, ["start", "ns", "measured_start", "measured_ns"]);
  plan.buffers = readTable(raw.buffers, ["offset", "bytes"]);
  plan.n = plan.instrs.name.length;
  const last = plan.sections[plan.sections.length - 1];
  const end = last ? last.start + last.ns : 0;
  plan.hasTimes = end > 0;
  plan.repeats = new Float64Array(plan.n);
  for (const s of plan.sections) plan.repeats.fill(s.repeats, s.first, s.first + s.n);
  plan.step = plan.sections.reduce((sum, s) => sum + s.repeats * s.ns, 0);
  plan.end = end;
  plan.isOneQueue = runsOneByOne(plan.instrs.start, plan.instrs.ns);
  plan.hasMeasured = Boolean(plan.instrs.measured_ns);
  plan.clock = clockOf(plan.instrs, plan.instrs.start, end, plan.isOneQueue);
  plan.clocks = {predicted: plan.clock};
  if (plan.hasMeasured) {
    const {measured_start: start, measured_ns: ns} = plan.instrs;
    const measuredEnd = start.reduce((most, s, k) => Math.max(most, s + ns[k]), 0);
    plan.clocks.measured = clockOf(plan.instrs, start, measuredEnd, plan.isOneQueue);
  }
  plan.shared = findShared(plan.buffers);
  plan.marks = findMarks(plan);
  plan.memories = plan.tiers.map((_, t) => readTier(plan, t)).filter(t => t.peak > 0);
  return plan;
}

/* What a root's memory holds at instruction k: itself, or the last that was made in its place. */
function contentAt(plan, root, k) {
  let content = root;
  for (const b of plan.shared.get(root) || [])
    if (plan.buffers.first[b] <= k && plan.buffers.first[b] >= plan.buffers.first[content]) content = b;
  return content;
}

/* "forward of block 3, linear layers.3.up.weight" */
function instrText(plan, k) {
  const {instrs, names} = plan;
  const block = instrs.block[k] >= 0 ? ` of block ${instrs.block[k]}` : "";
  return `${names[instrs.part[k]]}${block}: ${names[instrs.name[k]]}`;
}

/* Is it work, and not only order between queues? */
function isWork(plan, k) {
  const name = plan.names[plan.instrs.name[k]];
  return name !== "wait for another queue" && name !== "record";
}
