/* tables.js: the words and numbers around the drawings. */

function fillTable(id, heads, rows) {
  const head = element("tr", {}, ...heads.map(h => h instanceof Node ? h : element("th", {}, h)));
  byId(id).replaceChildren(element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}

function row(cells, kind = "tr") {
  return element(kind, {}, ...cells.map(c => c instanceof Node && c.tagName === "TD" ? c : element("td", {}, c)));
}

function named(shade, text) {
  const cell = element("td.left", {}, swatch(shade), ` ${text}`);
  return cell;
}

/* ---- the head ---- */

function figure(label, value, small) {
  return element("div", {}, element("dt", {}, label), element("dd", {}, value, small ? element("small", {}, small) : null));
}

function budgetText(budget, given) {
  return budget === null || budget === undefined ? "no budget" : `of ${bytesText(budget)} ${given ? "given" : "that can be had"}`;
}

function showHead(page) {
  const {forecast: f, plan} = page;
  const {batch, predicted, budget} = f;
  const title = `${f.model}, ${shortCount(f.params)} parameters`;
  document.title = `${title}: Snug plan`;
  byId("title").textContent = title;
  byId("subtitle").textContent = `${f.precision} on ${f.device}; ${batch.micro_batch} × ${batch.accumulation} × ` +
    `${batch.seq_len} = ${countText(batch.tokens_per_step)} tokens per step`;
  const verdict = byId("verdict");
  verdict.className = `verdict ${f.fits ? "kept" : "over"}`;
  verdict.textContent = f.fits ? "Fits its budgets" : f.error ? f.error.message : `Does not fit: ${f.binding} memory`;
  const figures = [
    figure("speed", `${rateText(predicted.tokens_per_s)} tokens/s`, `predicted from ${predicted.step_ms_source}`),
    figure("a step", durationText(predicted.step_ms * 1e6), `${(predicted.step_flops / 1e12).toFixed(2)} TFLOP useful`),
    figure("device memory", bytesText(budget.device_needs), budgetText(budget.device_bytes, plan.arenas[0].given)),
    figure("host memory", bytesText(budget.host_needs), budgetText(budget.host_bytes, plan.arenas[1].given)),
    figure("computed twice", percentText(predicted.recompute_flops, predicted.step_flops) || "nothing",
           `${f.recompute.recomputed} of ${f.recompute.blocks} blocks`),
  ];
  if (f.measured) figures.push(figure("measured", durationText(f.measured.step_ms * 1e6),
    `${signedPercent(f.measured.step_ms / predicted.step_ms - 1)} beside predicted`));
  byId("figures").replaceChildren(...figures);
}

/* ---- bytes ---- */

/* By class and memory, each at its own fullest moment. */
function showClasses(plan) {
  const at = (m, c) => m.byClass[c][m.peakAt];
  const share = (n, m) => element("td.share", {}, n > 0 ? percentText(n, m.arena.bytes) : "");
  const rows = plan.stack.filter(c => plan.memories.some(m => at(m, c) > 0)).map(c =>
    row([named(`var(--${plan.classes[c]})`, plan.classes[c]),
         ...plan.memories.flatMap(m => at(m, c) > 0 ? [bytesText(at(m, c)), share(at(m, c), m)] : ["", share(0, m)])]));
  const gaps = m => m.arena.bytes - m.peak;
  if (plan.memories.some(m => gaps(m) > 0))
    rows.push(row([element("td.left", {}, "gaps between buffers"), ...plan.memories.flatMap(m => [bytesText(gaps(m)), share(gaps(m), m)])]));
  const sum = row([element("td.left", {}, "arena"), ...plan.memories.flatMap(m => [bytesText(m.arena.bytes), share(0, m)])]);
  sum.className = "sum";
  rows.push(sum);
  fillTable("classes", ["at the fullest moment", ...plan.memories.flatMap(m => [m.name, element("th.share")])], rows);
}

function showLargest(plan, show) {
  const {buffers, names} = plan;
  const rows = [];
  for (const memory of plan.memories) {
    const alive = memory.roots.filter(b => buffers.first[b] <= memory.peakAt && memory.peakAt <= buffers.last[b]);
    alive.sort((a, b) => buffers.bytes[b] - buffers.bytes[a]);
    for (const b of alive.slice(0, 12)) {
      const content = contentAt(plan, b, memory.peakAt);
      const line = row([element("td.left.name", {}, names[buffers.name[content]]), memory.name,
                        named(`var(--${plan.classes[buffers.class[b]]})`, plan.classes[buffers.class[b]]), bytesText(buffers.bytes[b]),
                        element("td.text", {}, plan.purposes[buffers.purpose[content]])]);
      line.setAttribute("tabindex", "0");
      line.addEventListener("click", () => show(memory, b));
      line.addEventListener("keydown", e => { if (e.key === "Enter") show(memory, b); });
      rows.push(line);
    }
  }
  fillTable("largest", ["buffer", "memory", element("th.left", {}, "class"), "bytes", element("th.left", {}, "why")], rows);
}

/* ---- time ---- */

function showParts(plan) {
  const {instrs, names} = plan;
  const sums = new Map();
  for (let k = 0; k < plan.n; k++) {
    if (!isWork(plan, k)) continue;
    const sum = sums.get(instrs.part[k]) || {n: 0, predicted: 0, measured: 0};
    sum.n += plan.repeats[k];
    sum.predicted += plan.repeats[k] * instrs.ns[k];
    sum.measured += plan.hasMeasured ? plan.repeats[k] * instrs.measured_ns[k] : 0;
    sums.set(instrs.part[k], sum);
  }
  const heads = ["part", "instructions", "predicted"];
  if (plan.hasMeasured) heads.push("measured", "difference");
  fillTable("parts", heads, [...sums].map(([part, s]) => {
    const cells = [named(`var(--part-${names[part]})`, names[part]), countText(s.n), durationText(s.predicted)];
    if (plan.hasMeasured) cells.push(durationText(s.measured), s.predicted > 0 ? signedPercent(s.measured / s.predicted - 1) : "");
    return row(cells);
  }));
}

function showMeasured(f) {
  if (!f.measured) return;
  byId("measured-section").hidden = false;
  const lines = [["arena", f.predicted.arena_bytes, f.measured.arena_bytes, bytesText],
                 ["process on the device", f.predicted.device_bytes, f.measured.device_bytes, bytesText],
                 ["step", f.predicted.step_ms * 1e6, f.measured.step_ms * 1e6, durationText],
                 ["tokens/s", f.predicted.tokens_per_s, f.tokens_per_s, rateText]];
  fillTable("measured", ["", "predicted", "measured", "difference"], lines.map(([name, p, m, text]) =>
    row([name, text(p), text(m), p === m ? "equal" : p > 0 ? signedPercent(m / p - 1) : ""])));
}

/* What the search has seen beside the plan it took: rows of names and values, as they come. */
function showRunners(f) {
  if (!Array.isArray(f.runners_up) || f.runners_up.length === 0) return;
  byId("runners-section").hidden = false;
  const keys = Object.keys(f.runners_up[0]);
  const text = (key, x) => typeof x !== "number" ? element("td.text", {}, x) : key.endsWith("_bytes") ? bytesText(x)
    : key.endsWith("_ms") ? durationText(x * 1e6) : key.endsWith("_percent") ? signedPercent(x / 100) : countText(x);
  const head = k => typeof f.runners_up[0][k] === "number" ? k.replace(/_(percent|bytes|ms)$/, "") : element("th.left", {}, k);
  fillTable("runners", keys.map(head), f.runners_up.map(r => row(keys.map(k => text(k, r[k])))));
}
