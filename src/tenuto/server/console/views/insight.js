/** What the model saw, opened under an answer: the budget as a bar, part by part, tools, time and cost. */

import { fill, h, set } from "../dom.js";
import { money, milliseconds, number } from "../format.js";
import { t } from "../i18n.js";
import { tally } from "../marks.js";
import { Problem, sentence } from "../problem.js";
import { modelOf } from "./badges.js";
import { budgetView, entriesView } from "./budget.js";
import { textButton } from "./buttons.js";
import { icon } from "./icons.js";
import { parameterRows } from "./parameters.js";
import { stepsView, toolsView } from "./runs.js";

export function insightView(actions) {
  const node = h("div", { class: "insight", hidden: true });
  const button = h(
    "button",
    { type: "button", class: "quiet unfold", "aria-expanded": "false", on: { click: toggle } },
    icon("chevron"),
    t("insight.open"),
  );
  let item = null;
  let loaded = null;

  function draw(now) {
    if (item !== null && item.trace !== now.trace) fold();
    item = now;
    set(button, "hidden", now.trace === null);
  }

  function toggle() {
    const open = node.hidden;
    set(node, "hidden", !open);
    set(button, "aria-expanded", String(open));
    if (open && loaded !== item.trace) load();
  }

  function fold() {
    set(node, "hidden", true);
    set(button, "aria-expanded", "false");
  }

  async function load() {
    const { trace, reply } = item;
    fill(node, h("p", { class: "hint" }, t("app.loading")));
    try {
      look(await actions.trace(trace));
      loaded = trace;
    } catch (error) {
      // An answer that could not be kept has no trace; what its last event told is still here.
      if (reply) return look(reply);
      const problem = Problem.from(error);
      fill(node, h("p", { class: "notice" }, sentence(problem), " ", textButton(t("again"), load)));
    }
    return undefined;
  }

  function look(trace) {
    const { context, tools = [], steps, error } = trace;
    fill(
      node,
      context ? [budgetView(context), entriesView(context)] : h("p", { class: "hint" }, t(error ? "insight.none.failed" : "insight.none")),
      h("div", { class: "halves" }, stepsView(steps), facts(trace)),
      toolsView(tools),
    );
    node.scrollIntoView({ block: "nearest" });
  }

  return { node, button, draw };
}

function facts(trace) {
  const { usage, redacted = {} } = trace;
  const cost = Number(usage.cost_usd);
  const rows = [
    ...appRows(trace),
    [t("insight.model"), modelOf(trace)],
    ...parameterRows(trace),
    [
      t("insight.usage.label"),
      t("insight.usage", { input: number(usage.input_tokens), output: number(usage.output_tokens) }),
    ],
    ...thoughts(trace),
    [t("insight.cost"), cost ? money(cost, "USD", 6) : t("insight.free")],
    ...taken(redacted),
    [t("insight.total"), milliseconds(Object.values(trace.steps).reduce((all, each) => all + each, 0))],
  ];
  return h(
    "section",
    {},
    h("h2", {}, t("insight.facts")),
    h(
      "dl",
      {},
      rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
    ),
  );
}

/** The app that asked, and whether it asked that nothing is stored. */
function appRows({ app, app_task: task, store_overridden: overridden }) {
  const rows = app ? [[t("insight.app"), task ? `${app}, ${task}` : app]] : [];
  return overridden ? [...rows, [t("insight.stored"), t("insight.store_overridden")]] : rows;
}

/** What was thought, and what the model was not told of what others thought. */
function thoughts({ usage, dropped_reasoning: dropped = 0, dropped_items: items = 0 }) {
  return [
    [t("insight.reasoning"), usage.reasoning_tokens],
    [t("insight.dropped_reasoning"), dropped],
    [t("insight.dropped_items"), items],
  ].flatMap(([name, count]) => (count ? [[name, number(count)]] : []));
}

/** What the account itself may not hold: it is stored under a policy of its own. */
function taken(redacted) {
  const { count, list } = tally(redacted);
  return count ? [[t("taken.trace"), list]] : [];
}
