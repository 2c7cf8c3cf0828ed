/**
 * The steps of a task drawn over time: a bar for each, and a line from it to what comes after it. What a step is like is
 * told by a sign, a word and a shape as well as by its colour. One tab stop; the arrows go from step to step, and Enter
 * goes to the step in the list below, which has everything in words.
 */

import { fill, h, set, svg } from "../dom.js";
import { lasting, milliseconds } from "../format.js";
import { t } from "../i18n.js";
import { stepChart, ticks } from "../step_chart.js";
import { statusOf } from "./task_status.js";

const ROW = 42;
const TOP = 26; // the axis
const BAR = { top: 22, height: 9, least: 4, pending: 26 };
const SIGNS = { completed: "✓", failed: "✕", cancelled: "✕", running: "▶", waiting: "?", pending: "○", skipped: "–" };
const EACH_SECOND = 1000;

export function graphView() {
  const frame = h("div", { class: "graph" });
  const node = h("section", { class: "graph-section" }, h("h2", {}, t("tasks.graph")), frame);
  const pen = document.createElement("canvas").getContext("2d");
  let steps = [];
  let ended = true;
  let active = null; // the id of the step that the tab key comes to
  let timer = null;

  new ResizeObserver(() => paint()).observe(frame);

  function draw({ detail }) {
    ({ steps } = detail);
    ended = detail.completed_at !== null;
    set(node, "hidden", steps.length === 0);
    clearInterval(timer);
    timer = ended ? null : setInterval(tick, EACH_SECOND);
    paint();
  }

  function tick() {
    if (!node.isConnected) clearInterval(timer);
    // A screen reader would read the step that has the focus anew every second.
    else if (!document.hidden && !frame.contains(document.activeElement)) paint();
  }

  function paint() {
    const width = frame.clientWidth;
    if (width === 0 || steps.length === 0) return;
    const chart = stepChart(steps, Date.now());
    const focused = frame.contains(document.activeElement);
    if (!steps.some((step) => step.id === active)) active = chart.rows[0].step.id;
    fill(frame, picture(chart, width));
    if (focused) focus(active);
  }

  function picture(chart, width) {
    const { rows, total, open } = chart;
    pen.font = `600 13px ${getComputedStyle(frame).fontFamily}`;
    const deepest = Math.max(...rows.map(({ start, depth }) => (start === null ? depth : -1)));
    const band = open ? Math.min(0.4 * width, (deepest + 1) * (BAR.pending + 8) + 12) : 0;
    const room = width - band - 8;
    const scale = total > 0 ? room / total : 0;
    const places = new Map(rows.map((row, number) => [row.step.id, place(row, number)]));

    function place({ step, start, end, depth }, number) {
      const top = TOP + number * ROW;
      const left = start === null ? room + 12 + (depth * (band - 16)) / (deepest + 1) : 2 + start * scale;
      const length =
        start === null ? Math.min(BAR.pending, band / (deepest + 1) - 10) : Math.max(BAR.least, (end - start) * scale);
      return {
        step,
        top,
        left: Math.min(left, width - BAR.least),
        right: Math.min(left + length, width - 2),
        middle: top + BAR.top + BAR.height / 2,
      };
    }

    const height = TOP + rows.length * ROW;
    return svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": t("tasks.graph") },
      axis(total, scale, { width, height, measure }, open ? room + 6 : null),
      [...places.values()].flatMap((to) =>
        to.step.after.filter((id) => places.has(id)).map((id) => edge(places.get(id), to)),
      ),
      rows.map(({ step }) => bar(places.get(step.id), width)),
      rows.map(({ step }) => label(places.get(step.id), width)),
    );
  }

  function bar({ step, top, left, right, middle }, width) {
    const status = statusOf(step);
    const about = [
      `${step.id}: ${t(`status.${status}`)}`,
      step.agent ?? t("tasks.person"),
      durationOf(step),
      step.after.length > 0 && t("tasks.after", { steps: step.after.join(t("mark.comma")) }),
    ];
    const named = {
      "data-step": step.id,
      "data-status": status,
      "aria-label": about.filter(Boolean).join(t("mark.comma")),
    };
    return svg(
      "g",
      { class: "bar-row", role: "button", tabindex: step.id === active ? 0 : -1, ...named },
      svg("rect", { class: "reach", x: 0, y: top, width, height: ROW - 4, rx: 6 }),
      svg("rect", {
        class: "bar",
        x: left,
        y: middle - BAR.height / 2,
        width: Math.max(BAR.least, right - left),
        height: BAR.height,
        rx: 3,
      }),
    );
  }

  /** A sign, the name, and how it is, above the bar or as near to that as there is room. */
  function label({ step, top, left }, width) {
    const status = statusOf(step);
    const took = durationOf(step);
    const word = status === "completed" ? "" : t(`status.${status}`);
    const rest = [word, took, step.attempts > 1 && t("tasks.attempts", { count: step.attempts })]
      .filter(Boolean)
      .join(" · ");
    const name = shortened(`${SIGNS[status] ?? "•"} ${step.id}`, width - measure(`  ${rest}`) - 4);
    const beyond = left + measure(`${name}  ${rest}`) > width;
    return svg(
      "text",
      {
        x: beyond ? width - 2 : left,
        y: top + 16,
        "text-anchor": beyond ? "end" : "start",
        "aria-hidden": "true",
        "data-step": step.id,
        "data-status": status,
      },
      svg("tspan", { class: "name" }, name),
      svg("tspan", { class: "rest", dx: 7 }, rest),
    );
  }

  function measure(text) {
    return pen.measureText(text).width;
  }

  function shortened(text, most) {
    if (measure(text) <= most) return text;
    let end = text.length;
    while (end > 4 && measure(`${text.slice(0, end)}…`) > most) end -= 1;
    return `${text.slice(0, end)}…`;
  }

  function focus(id) {
    active = id;
    for (const row of frame.querySelectorAll(".bar-row")) {
      set(row, "tabindex", row.dataset.step === id ? "0" : "-1");
      if (row.dataset.step === id) row.focus();
    }
  }

  /** Go to the step in the list. */
  function show(id) {
    const step = [...document.querySelectorAll(".task .step")].find((each) => each.dataset.step === id);
    step?.focus();
    step?.scrollIntoView({ block: "center" });
  }

  frame.addEventListener("click", (event) => {
    const row = event.target.closest(".bar-row");
    if (row) show(row.dataset.step);
  });
  frame.addEventListener("keydown", (event) => {
    const rows = [...frame.querySelectorAll(".bar-row")].map((row) => row.dataset.step);
    const place = rows.indexOf(active);
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      if (rows[to] !== undefined) focus(rows[to]);
    }
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      show(active);
    }
  });

  return { node, draw };
}

function durationOf({ started_at: from, ended_at: to }) {
  return from && lasting(Math.max(0, (to ? new Date(to) : Date.now()) - new Date(from)));
}

/** Times along the top; the steps that have not begun stand beyond the last line. */
function axis(total, scale, { width, height, measure }, until) {
  const marks = total > 0 ? ticks(total) : [];
  // Steps below a minute are told in seconds to the end, since most are no whole minutes.
  const said = marks[1] < 60_000 ? milliseconds : lasting;
  // The last one would reach beyond the picture.
  const middle = (text, x) => Math.min(x, width - measure(text) / 2);
  return svg(
    "g",
    { class: "axis", "aria-hidden": "true" },
    marks.map((at) => [
      svg("line", { x1: 2 + at * scale, x2: 2 + at * scale, y1: TOP - 8, y2: height }),
      at === 0
        ? svg("text", { x: 2, y: TOP - 12 }, "0")
        : svg("text", { x: middle(said(at), 2 + at * scale), y: TOP - 12, "text-anchor": "middle" }, said(at)),
    ]),
    until !== null && svg("line", { class: "until", x1: until, x2: until, y1: TOP - 8, y2: height }),
  );
}

/** From the end of a step down to the beginning of one that comes after it. */
function edge(from, to) {
  const x = Math.max(from.left + 2, from.right - 3);
  const bend = Math.min(6, Math.max(0, to.left - x - 4));
  const way = `M${x} ${from.middle + BAR.height / 2}V${to.middle - bend}q0 ${bend} ${bend} ${bend}H${to.left - 1}`;
  const head =
    to.left - x > 9
      ? `M${to.left - 6} ${to.middle - 3.5}L${to.left - 1} ${to.middle}L${to.left - 6} ${to.middle + 3.5}`
      : "";
  const taken = [from, to].every(({ step }) => step.status !== "skipped" && step.status !== "pending");
  return svg("path", { class: taken ? "edge taken" : "edge", d: way + head });
}
