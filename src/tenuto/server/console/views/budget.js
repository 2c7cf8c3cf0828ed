/** The manifest: the budget as a bar of coloured parts, and a list that tells what became of each. */

import { fill, h } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { range, shares, used } from "../manifest.js";
import { marked } from "./marks.js";

// Below this share of the budget the parts are too thin to tell apart, and are shown enlarged as well.
const THIN = 0.5;

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

/** `recall(id)` brings the text of a memory, or nothing where it was forgotten. */
export function entriesView({ entries }, recall) {
  const head = ["part", "disposition", "why", "tokens"].map((name) => h("th", { scope: "col" }, t(`insight.${name}`)));
  return h(
    "section",
    {},
    h("h2", {}, t("insight.entries")),
    h("table", { class: "entries" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, entries.map((entry) => row(entry, recall)))),
  );
}

function row(entry, recall) {
  const { kind, disposition, reason, tokens, uncut_tokens: uncut, id, count } = entry;
  const several = count > 1 && t("insight.messages", { count: number(count) });
  // Messages are known by their numbers, memories by their text; the ids of evidence are what people quote.
  const named = kind !== "message" && kind !== "memory" && id;
  const which = [named, range(entry), several].filter(Boolean).join(" · ");
  const size = uncut > tokens ? t("insight.uncut", { tokens: number(tokens), uncut: number(uncut) }) : number(tokens);
  return h(
    "tr",
    { data: { kind, disposition, tokens } },
    h(
      "th",
      { scope: "row" },
      h("span", { class: "swatch" }),
      t(`kind.${kind}`),
      which && h("span", { class: "which" }, ` ${which}`),
      kind === "memory" && id && recalled(id, recall),
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

function recalled(id, recall) {
  const text = h("span", { class: "recalled", data: { memory: id } });
  recall(id).then(
    (words) => fill(text, " ", words === null ? t("insight.forgotten") : ["“", marked(words), "”"]),
    () => fill(text, ` ${id}`), // which one it was can still be told
  );
  return text;
}
