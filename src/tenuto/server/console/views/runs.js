/** What took time: the steps of a turn as small bars, and every tool with what it was asked for and found. */

import { h } from "../dom.js";
import { milliseconds } from "../format.js";
import { has, t } from "../i18n.js";
import { marked } from "./marks.js";

const ORDER = ["begin", "tools", "assemble", "model", "trace", "finish"];
const MOST = 4000;

export function stepsView(steps) {
  const rows = Object.entries(steps).sort(([one], [other]) => place(one) - place(other));
  const longest = Math.max(...rows.map(([, taken]) => taken), 1);
  return h(
    "section",
    {},
    h("h2", {}, t("insight.steps")),
    h(
      "ul",
      { class: "steps" },
      rows.map((row) => step(...row, longest)),
    ),
  );
}

function place(name) {
  return ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length;
}

function step(name, taken, longest) {
  const line = h("span", { class: "line" });
  line.style.width = `${(100 * taken) / longest}%`;
  const called = has(`step.${name}`) ? t(`step.${name}`) : name;
  return h(
    "li",
    {},
    h("span", { class: "name" }, called),
    h("span", { class: "track" }, line),
    h("b", {}, milliseconds(taken)),
  );
}

export function toolsView(tools) {
  if (tools.length === 0) return null;
  return h("section", {}, h("h2", {}, t("insight.tools")), tools.map(tool));
}

function tool({ name, arguments: asked, output, milliseconds: taken, error, exception }) {
  return h(
    "details",
    { class: "tool" },
    h(
      "summary",
      {},
      h("code", {}, name),
      ` ${milliseconds(taken)}`,
      error && h("span", { class: "badge grave" }, error),
    ),
    h("h3", {}, t("insight.arguments")),
    json(asked),
    output != null && [h("h3", {}, t("insight.output")), json(output)],
    exception && [h("h3", {}, t("insight.exception")), h("pre", { tabindex: 0, lang: "en" }, marked(exception))],
  );
}

function json(value) {
  const text = JSON.stringify(value, null, 2);
  return h("pre", { tabindex: 0 }, marked(text.length > MOST ? `${text.slice(0, MOST)} …` : text));
}
