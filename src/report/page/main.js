/* main.js: the page from its data. */

function choice(label, options, current, choose) {
  const buttons = options.map(([text, value]) => {
    const b = element("button", {type: "button", "aria-pressed": String(value === current())}, text);
    b.addEventListener("click", () => {
      choose(value);
      options.forEach(([, v], i) => buttons[i].setAttribute("aria-pressed", String(v === current())));
    });
    return b;
  });
  return element("span.choice", {role: "group", "aria-label": label}, ...buttons);
}

function button(text, label, act) {
  const b = element("button", {type: "button", "aria-label": label}, text);
  b.addEventListener("click", act);
  return b;
}

function axes(plan) {
  const times = Object.keys(plan.clocks).map(name => [`${name} time`, name]);
  return [...times, ["instruction order", "order"]];
}

function showControls(plan, panels) {
  const setAddress = x => {
    view.byAddress = x;
    panels.forEach(p => p.select(null));
    viewChanged();
  };
  const controls = [
    choice("memory", [["by class", false], ["by address", true]], () => view.byAddress, setAddress),
    plan.hasTimes ? choice("axis", axes(plan), () => view.axis, viewSetAxis) : null,
    element("span.choice", {role: "group", "aria-label": "zoom"},
      button("−", "zoom out", () => viewZoom(1 / 0.6)), button("+", "zoom in", () => viewZoom(0.6)),
      button("fullest moment", "zoom to the fullest moment", () => {
        const at = xOf(plan.memories[0].peakAt);
        viewShow(at - xEnd() / 40, at + xEnd() / 40);
      }),
      button("whole step", "show the whole step", () => panels.forEach(p => p.reset()))),
  ];
  byId("controls").replaceChildren(...controls.filter(Boolean));
  byId("hint").textContent = matchMedia("(pointer: coarse)").matches
    ? "Tap anything to see what it is; two fingers zoom." : "Point at anything to see what it is; drag to zoom in, double-click to see all again. " +
    "Ctrl and the wheel zoom too, and so do two fingers. With the keyboard: Tab to a drawing, arrows, + and −.";
}

function showFooter(page) {
  const {plan} = page;
  byId("footer").textContent = `Snug ${page.snug}; ${countText(plan.n)} instructions, ${countText(plan.buffers.name.length)} buffers. ` +
    (plan.sections.some(s => s.repeats > 1) ? "What a step repeats is drawn once. " : "") +
    [...new Set(plan.sections.map(s => s.occasion).filter(Boolean))].map(x => `“${x}” is drawn too, and no part of a usual step. `).join("") +
    "Memory is taken and given back by the clock of the computing queue. Addresses and bytes are exact; times are predicted.";
}

function start() {
  const page = JSON.parse(byId("plan").textContent);
  const plan = page.plan = readPlan(page.plan);
  viewInit(plan);
  showHead(page);
  const memories = plan.memories.map(m => new MemoryPanel(plan, m));
  const panels = [...memories, new LanesPanel(plan)];
  showControls(plan, panels);
  showClasses(plan);
  byId("decisions").replaceChildren(...page.decisions.map(d => element("li", {}, d)));
  showRunners(page.forecast);
  showMeasured(page.forecast);
  showLargest(plan, (memory, b) => {
    byId("controls").querySelectorAll("button")[1].click();
    const panel = memories.find(p => p.tier === memory);
    panel.show(b);
    panel.section.scrollIntoView({block: "center"});
  });
  showParts(plan);
  showFooter(page);
  const repaint = () => {
    colours.clear();
    panels.forEach(p => p.paint());
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  addEventListener("beforeprint", () => { document.documentElement.dataset.print = ""; repaint(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.print; repaint(); });
  addEventListener("scroll", hideTip, {passive: true});
}

start();
