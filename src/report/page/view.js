/* view.js: which part of the step all drawings show, and by which clock. */

const view = {
  axis: "order",    // x is "predicted" or "measured" time, or the "order" of instructions
  byAddress: false, // memory is drawn by address; else stacked by class
  lo: 0, hi: 1,     // what is shown, in units of x
  listeners: [],
};

function viewInit(plan) {
  view.plan = plan;
  view.axis = plan.hasTimes ? "predicted" : "order";
  viewReset();
}

function isTime() {
  return view.axis !== "order";
}

/* Where instruction k begins; k = n is the end. */
function xOf(k) {
  return isTime() ? view.plan.clocks[view.axis][k] : k;
}

/* The end of all that is drawn: what was predicted and what was measured share their axis. */
function xEnd() {
  const {n, clocks} = view.plan;
  return isTime() ? Math.max(...Object.values(clocks).map(c => c[n])) : n;
}

/* The last instruction that begins at or before x. */
function instrAt(x) {
  let lo = 0;
  let hi = view.plan.n - 1;
  while (lo < hi) {
    const middle = (lo + hi + 1) >> 1;
    if (xOf(middle) <= x) lo = middle;
    else hi = middle - 1;
  }
  return lo;
}

/* The first one that ends after x. */
function firstAt(x) {
  let lo = 0;
  let hi = view.plan.n;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (xOf(middle + 1) < x) lo = middle + 1;
    else hi = middle;
  }
  return lo;
}

function viewChanged() {
  for (const listener of view.listeners) listener();
}

/* Shows [lo, hi], inside the step and not narrower than an instant. */
function viewShow(lo, hi) {
  const end = xEnd();
  const least = isTime() ? Math.min(200, end) : Math.min(4, end);
  const width = Math.min(Math.max(hi - lo, least), end);
  view.lo = Math.min(Math.max(lo, 0), end - width);
  view.hi = view.lo + width;
  viewChanged();
}

function viewReset() {
  view.lo = 0;
  view.hi = xEnd();
  viewChanged();
}

/* factor < 1 comes nearer; `at` stays where it is. */
function viewZoom(factor, at = (view.lo + view.hi) / 2) {
  viewShow(at - (at - view.lo) * factor, at + (view.hi - at) * factor);
}

function viewPan(share) {
  const by = share * (view.hi - view.lo);
  viewShow(view.lo + by, view.hi + by);
}

/* Another clock, with the same instructions in sight. */
function viewSetAxis(axis) {
  if (axis === view.axis) return;
  const first = instrAt(view.lo);
  const last = instrAt(view.hi);
  const whole = view.lo <= 0 && view.hi >= xEnd();
  view.axis = axis;
  if (whole) viewReset();
  else viewShow(xOf(first), xOf(Math.min(last + 1, view.plan.n)));
}
