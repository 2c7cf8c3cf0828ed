/** Tokens, turns and cost by day and assistant, and what sessions are about, as charts with their numbers. */

import { fill, h, set } from "../dom.js";
import { money, number } from "../format.js";
import { t } from "../i18n.js";
import { assistantNames } from "./assistant_name.js";
import { sparkline, stackedBars } from "./charts.js";
import { pageHeader } from "./page_header.js";
import { refusal } from "./refusal.js";

const PERIODS = [7, 30, 90];
const MEASURES = {
  tokens: { value: (counts) => counts.input_tokens + counts.output_tokens, format: (value) => number(value) },
  turns: { value: (counts) => counts.turns, format: (value) => number(value) },
  cost: { value: (counts) => Number(counts.cost_usd), format: (value) => money(value, "USD", 4) },
};
const DAY = 86_400_000;

export function usageView(actions) {
  const header = pageHeader(actions, t("page.usage"), t("usage.lead"));
  const notice = h("p", { class: "notice", role: "status" });
  const periods = choice("usage.period", PERIODS, (days) => t("usage.days", { days }), actions.page.show);
  const measures = choice("usage.measure", Object.keys(MEASURES), (name) => t(`usage.${name}`), actions.page.measure);
  const totals = h("dl", { class: "totals" });
  const chart = h("section", {});
  const assistants = h("section", {});
  const topics = h("section", {});
  const body = h("div", { class: "usage-body" }, totals, measures.node, chart, assistants, topics);
  const node = h(
    "div",
    { class: "page usage" },
    header.node,
    h("div", { class: "scroll" }, h("div", { class: "column" }, periods.node, notice, body)),
  );
  let last = null;

  function draw(state, now) {
    header.draw(state);
    if (now === last) return;
    last = now;
    const { days, measure, usage, problem, loading } = now;
    const seen = !problem && !loading;
    periods.draw(days);
    measures.draw(measure);
    fill(notice, problem ? refusal(problem, "usage.role", actions) : loading && t("app.loading"));
    set(notice, "hidden", seen);
    set(body, "hidden", !seen);
    if (!seen) return;
    const used = usage.days.length > 0;
    set(measures.node, "hidden", !used);
    fill(totals, used && sums(usage.total));
    const name = namesIn(state);
    fill(chart, used ? byDay(usage, measure, name) : h("p", { class: "hint" }, t("usage.none")));
    fill(assistants, used && byAssistant(usage, name));
    fill(topics, topicTable(now.topics));
  }

  return { node, draw, focus: header.focus, title: () => t("page.usage") };
}

/** A group of buttons of which one is pressed. */
function choice(name, values, word, choose) {
  const buttons = values.map((value) =>
    h("button", { type: "button", class: "quiet", on: { click: () => choose(value) } }, word(value)),
  );
  return {
    node: h("div", { class: "kinds", role: "group", "aria-label": t(name) }, buttons),
    draw(chosen) {
      buttons.forEach((button, place) => set(button, "aria-pressed", String(values[place] === chosen)));
    },
  };
}

function sums(total) {
  return Object.entries(MEASURES).map(([name, { value, format }]) =>
    h("div", {}, h("dt", {}, t(`usage.${name}`)), h("dd", { data: { total: name } }, format(value(total)))),
  );
}

function byDay(usage, measure, name) {
  const { value, format } = MEASURES[measure];
  const days = daysBetween(usage.first_day, usage.last_day);
  const rows = new Map(usage.days.map((day) => [day.day, day.assistants]));
  const series = usage.assistants.map(({ assistant }) => ({
    name: name(assistant),
    values: days.map((day) => value(rows.get(day)?.find((each) => each.assistant === assistant) ?? NOTHING)),
  }));
  const label = t("usage.chart", { measure: t(`usage.${measure}`), first: days[0], last: days.at(-1) });
  return [
    h("h2", {}, t("usage.by_day", { measure: t(`usage.${measure}`) })),
    stackedBars({ days, series, format, label }),
    h("details", {}, h("summary", {}, t("usage.table")), dayTable(usage.days)),
  ];
}

const NOTHING = { turns: 0, input_tokens: 0, output_tokens: 0, cost_usd: "0" };

function dayTable(days) {
  return countsTable("usage.day", days.map((counts) => [counts.day, counts]));
}

function byAssistant({ assistants }, name) {
  const rows = assistants.map((counts) => [name(counts.assistant), counts]);
  return [h("h2", {}, t("usage.by_assistant")), countsTable("usage.assistant", rows)];
}

function countsTable(first, rows) {
  return table(
    [first, "usage.turns", "usage.input", "usage.output", "usage.cost"],
    rows.map(([name, counts]) => [
      name,
      number(counts.turns),
      number(counts.input_tokens),
      number(counts.output_tokens),
      MEASURES.cost.format(MEASURES.cost.value(counts)),
    ]),
  );
}

function topicTable({ topics, sessions, first_day, last_day, truncated }) {
  const days = daysBetween(first_day, last_day);
  const rows = topics.map((topic) => [topic.name, number(topic.sessions), number(topic.users), overTime(topic, days)]);
  return [
    h("h2", {}, t("usage.topics")),
    topics.length > 0
      ? table(["usage.topic", "usage.sessions", "usage.users", "usage.over_time"], rows)
      : h("p", { class: "hint" }, t("usage.topics.none")),
    h("p", { class: "hint" }, t(`usage.read${truncated ? ".some" : ""}`, { count: sessions, number: number(sessions) })),
  ];
}

function overTime(topic, days) {
  const told = days.filter((day) => topic.days[day]).map((day) => `${day}: ${number(topic.days[day])}`);
  return sparkline(days.map((day) => topic.days[day] ?? 0), told.join(", "));
}

function table(heads, rows) {
  return h(
    "div",
    { class: "usage-table", tabindex: 0, role: "region", "aria-label": t(heads[0]) },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, heads.map((name) => h("th", { scope: "col" }, t(name))))),
      h("tbody", {}, rows.map(row)),
    ),
  );
}

function row([first, ...rest]) {
  const cells = rest.map((cell) => h("td", {}, cell));
  return h("tr", {}, h("th", { scope: "row" }, first), cells);
}

/** Titles and summaries have no assistant. */
function namesIn(state) {
  const name = assistantNames(state);
  return (assistant) => name(assistant) || t("usage.upkeep");
}

/** Every day of the period, those without usage too. */
function daysBetween(first, last) {
  const count = Math.round((Date.parse(last) - Date.parse(first)) / DAY) + 1;
  return Array.from({ length: count }, (_, day) => new Date(Date.parse(first) + day * DAY).toISOString().slice(0, 10));
}
