/** Charts without a library: bars by day, stacked, and a line of small bars. Colours come from the style sheet. */

import { h, svg } from "../dom.js";

const WIDTH = 600;
const HEIGHT = 160;
const GAP = 0.25; // the part of a day's width between its bar and the next

/**
 * Bars of each day, one part for each series. `series` has `name` and `values` (one for each day), `format` writes a
 * value. The chart is a picture with a label; the page shows the same numbers in a table.
 */
export function stackedBars({ days, series, format, label }) {
  const totals = days.map((_, day) => series.reduce((sum, each) => sum + each.values[day], 0));
  const most = Math.max(...totals) || 1;
  const width = WIDTH / days.length;
  const bars = days.map((day, place) => {
    const raised = series.filter((each) => each.values[place]);
    const told = raised.map((each) => `${each.name} ${format(each.values[place])}`);
    return svg("g", {}, svg("title", {}, [day, ...told].join("\n")), pile(series, place, width, most));
  });
  return h(
    "figure",
    { class: "chart" },
    h("span", { class: "most", "aria-hidden": "true" }, format(most)),
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      bars,
    ),
    h("p", { class: "ends", "aria-hidden": "true" }, h("span", {}, days[0]), h("span", {}, days.at(-1))),
    h("ul", { class: "series" }, series.map(legend)),
  );
}

function legend({ name }, place) {
  return h("li", { class: tone(place) }, name);
}

function pile(series, day, width, most) {
  let top = HEIGHT;
  return series.map((each, place) => {
    const height = (each.values[day] / most) * HEIGHT;
    top -= height;
    return height > 0 && bar(day * width + (width * GAP) / 2, top, width * (1 - GAP), height, tone(place));
  });
}

/** A few days side by side, as high as a line of text. */
export function sparkline(values, label) {
  const most = Math.max(...values) || 1;
  const bars = values.map((value, day) => bar(day + GAP / 2, 1 - value / most, 1 - GAP, value / most));
  const shape = { viewBox: `0 0 ${values.length} 1`, preserveAspectRatio: "none", role: "img", "aria-label": label };
  return svg("svg", { class: "sparkline", ...shape }, bars);
}

function bar(x, y, width, height, look = null) {
  return svg("rect", { x, y, width, height, class: look });
}

/** There are six colours; further series share the last one. */
function tone(place) {
  return `tone-${Math.min(place, 5)}`;
}
