/** The manifest: the budget as a bar of coloured parts, and a list that tells what became of each. */

import { h } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { range, shares, used } from "../manifest.js";
import { marked } from "./marks.js";

// Below this share of the budget the parts are too thin to tell apart, and are shown enlarged as well.
const THIN = 0.5;
// Characters of a part that are shown before one unfolds it.
const EXCERPT = 140;

export function budgetView(context) {
  const { total, budget, exact } = context;
  const parts = shares(context);
  const percent = number((100 * total) / budget, total / budget < 0.1 ? 1 : 0);
  return h(
    "section",
    { class: "budget" },
    h(
      "p",
      { class: "sum" },
      t("insight.sum", { total: number(total), budget: number(budget), percent }),
      !exact && h("span", { class: "hint" }, ` · ${t("insight.inexact")}`),
    ),
    bar(parts, t("insight.bar", { parts: parts.map(spoken).join(", ") })),
    total > 0 &&
      total / budget < THIN && [
        h("p", { class: "hint" }, t("insight.zoom", { total: number(total) })),
        bar(used(context), null, "zoom"),
      ],
    h("ul", { class: "legend" }, parts.map(legend)),
  );
}

function bar(parts, label, more = "") {
  const spans = parts.map(({ kind, tokens }) => {
    const span = h("span", { data: { kind, tokens }, title: `${t(`kind.${kind}`)}: ${number(tokens)}` });
    span.style.flexGrow = tokens;
    return span;
  });
  return h(
    "div",
    { class: `bar ${more}`, role: label && "img", "aria-label": label, "aria-hidden": label ? null : "true" },
    spans,
  );
}

function legend({ kind, tokens }) {
  return h("li", { data: { kind } }, t(`kind.${kind}`), h("b", {}, number(tokens)));
}

function spoken({ kind, tokens }) {
  return `${t(`kind.${kind}`)} ${number(tokens)}`;
}

export function entriesView({ entries, total }) {
  const head = ["part", "disposition", "why", "tokens"].map((name) => h("th", { scope: "col" }, t(`insight.${name}`)));
  return h(
    "section",
    {},
    h("h2", {}, t("insight.entries")),
    h(
      "table",
      { class: "entries" },
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, entries.map(row)),
      h("tfoot", {}, sumRow(total)),
    ),
  );
}

function sumRow(total) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, t("insight.sum.label")),
    h("td"),
    h("td", { class: "why" }),
    h("td", { class: "figure" }, number(total)),
  );
}

function row(entry) {
  const { kind, disposition, reason, tokens, uncut_tokens: uncut, id, count, score = null } = entry;
  const several = count > 1 && t("insight.messages", { count: number(count) });
  // Messages are known by their numbers, memories by their text; the ids of evidence are what people quote.
  const named = kind !== "message" && kind !== "memory" && id;
  const { role = null, speaker = null } = entry;
  const who = role !== null && [t(`role.${role}`), speaker].filter(Boolean).join(" ");
  const found = score !== null && t("insight.score", { score: number(score, 2) });
  const which = [named, range(entry), several, who, found].filter(Boolean).join(" · ");
  const size = uncut > tokens ? t("insight.uncut", { tokens: number(tokens), uncut: number(uncut) }) : number(tokens);
  return h(
    "tr",
    { data: { kind, disposition, tokens, state: entry.state } },
    h(
      "th",
      { scope: "row" },
      h("span", { class: "swatch" }),
      t(`kind.${kind}`),
      which && h("span", { class: "which" }, ` ${which}`),
      seen(entry),
    ),
    h(
      "td",
      {},
      h("span", { class: "disposition" }, t(`disposition.${disposition}`)),
      // Where there is no room for a column of its own, the reason stands here.
      h("span", { class: "reason" }, t(`reason.${reason}`)),
    ),
    h("td", { class: "why" }, t(`reason.${reason}`)),
    h("td", { class: "figure" }, size),
  );
}

/** The text of a part, as it is stored now; a long one is folded. */
function seen({ text = null, state, kind }) {
  const told = ["redacted", "changed", "unchecked", "gone", "withheld"].includes(state);
  const since = told && h("span", { class: "since" }, t(`insight.${state}`));
  if (!text) return since && h("div", { class: "seen" }, since);
  const start = excerpt(text);
  if (start === text) return h("div", { class: "seen" }, since, h("div", { class: "whole", dir: "auto" }, marked(text)));
  // It scrolls, so a keyboard has to reach it.
  const whole = h("div", { class: "whole", dir: "auto", tabindex: 0 }, marked(text));
  const label = h("summary", { dir: "auto", title: t("insight.text", { part: t(`kind.${kind}`) }) }, marked(start), " …");
  return h("details", { class: "seen" }, label, since, whole);
}

/** The beginning of a text, up to the end of a word; the whole of a short one. */
function excerpt(text) {
  if (text.length <= EXCERPT && !text.includes("\n")) return text;
  const start = text.slice(0, EXCERPT).replaceAll(/\s+/g, " ");
  const end = start.lastIndexOf(" ");
  return end > EXCERPT / 2 ? start.slice(0, end) : start;
}
