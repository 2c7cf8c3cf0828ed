/** One turn: what was asked and answered, its steps as a waterfall, and what the model saw. */

import { fill, h, set } from "../dom.js";
import { instant, milliseconds, money, number } from "../format.js";
import { has, t } from "../i18n.js";
import { Problem, sentence } from "../problem.js";
import { addressOf, addressOfPage } from "../route.js";
import { waterfall } from "../waterfall.js";
import { assistantNames } from "./assistant_name.js";
import { modelOf } from "./badges.js";
import { textButton } from "./buttons.js";
import { insightView } from "./insight.js";
import { marked } from "./marks.js";
import { pageHeader } from "./page_header.js";
import { parameterRows } from "./parameters.js";
import { outcome } from "./traces.js";

export function traceView(actions) {
  const lead = h("span");
  const header = pageHeader(actions, t("traces.trace"), lead);
  const notice = h("p", { class: "notice", role: "status" });
  const body = h("div", { class: "trace-body" });
  const back = h("a", { class: "back", href: addressOfPage("traces") }, t("traces.back"));
  const column = h("div", { class: "wide" }, back, notice, body);
  const node = h("div", { class: "page trace" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    if (now === last) return;
    last = now;
    const { detail, problem } = now;
    fill(notice, problem ? [sentence(problem), " ", textButton(t("again"), actions.page.trace.again)] : t("app.loading"));
    set(notice, "hidden", detail !== null);
    fill(lead, detail && instant(detail.began_at));
    fill(body, detail && [facts(detail, state), raised(detail), said(detail), timeline(detail), seen(detail)]);
  }

  /** The same as under an answer; the trace is here already. */
  function seen(detail) {
    const insight = insightView({ ...actions, trace: async () => detail });
    insight.draw({ trace: detail.trace_id, reply: null });
    return h("section", {}, insight.button, insight.node);
  }

  return { node, draw, focus: header.focus, title: () => t("traces.trace") };
}

function facts(trace, state) {
  const { input_tokens: input, output_tokens: output, cost_usd: cost } = trace.usage;
  const rows = [
    [t("traces.session"), h("a", { href: addressOf(trace.session_id) }, t("traces.turn", { turn: trace.turn }))],
    trace.user && [t("traces.column.user"), h("span", { dir: "auto" }, trace.user)],
    [t("traces.column.assistant"), [assistantNames(state)(trace.assistant), trace.persona && ` (${trace.persona})`]],
    [t("insight.model"), modelOf(trace)],
    ...parameterRows(trace),
    [t("traces.column.outcome"), [outcome({ ...trace, reason: null }), trace.error_message && [" ", failure(trace)]]],
    [t("insight.usage.label"), t("insight.usage", { input: number(input), output: number(output) })],
    [t("insight.cost"), Number(cost) ? money(Number(cost), "USD", 6) : t("insight.free")],
  ];
  return h(
    "dl",
    { class: "trace-facts" },
    rows.filter(Boolean).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** Why it failed: in the reader's language where the model did, and in the server's words. */
function failure(trace) {
  const { reason, error_message: message } = trace;
  return [trace.error && reason && sentence(Problem.ofTrace(trace)), " ", message && h("small", { class: "cause", lang: "en" }, marked(message))];
}

/** What tools raised, for those who may see it. */
function raised({ tools = [] }) {
  const failed = tools.filter(({ exception }) => exception);
  if (!failed.length) return null;
  const lines = failed.map(({ name, exception }) => h("p", { class: "cause", lang: "en", dir: "ltr" }, h("code", {}, name), " ", marked(exception)));
  return h("section", { class: "raised" }, h("h2", {}, t("insight.exception")), lines);
}

function said({ request, answer }) {
  const texts = [
    [t("traces.column.request"), request],
    [t("traces.answer"), answer],
  ];
  return texts.filter(([, text]) => text).map(([name, text]) => h("section", {}, h("h2", {}, name), h("p", { class: "text", dir: "auto" }, marked(text))));
}

function timeline(trace) {
  const { rows, total, exact } = waterfall(trace);
  const heads = ["step", "tokens", "cost", "start", "took"];
  return h(
    "section",
    {},
    h("h2", {}, t("traces.waterfall")),
    !exact && h("p", { class: "hint" }, t("traces.inexact")),
    h(
      "table",
      { class: "waterfall" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          heads.map((name) => h("th", { scope: "col", class: name }, t(`traces.${name}`))),
          h("th", { class: "axis", "aria-hidden": "true" }, h("span", {}, "0"), h("span", {}, milliseconds(total))),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((row) => line(row, total)),
      ),
    ),
  );
}

function line(row, total) {
  const { kind, name, start, milliseconds: taken, usage, error } = row;
  const bar = h("span", { class: "bar" });
  const scale = total > 0 ? 100 / total : 0;
  bar.style.left = `${start * scale}%`;
  bar.style.width = `${taken * scale}%`;
  const used = usage && usage.input_tokens + usage.output_tokens > 0;
  return h(
    "tr",
    { data: { kind, step: name, error: error && "" } },
    h("th", { scope: "row" }, kind === "tool" ? h("code", {}, name) : named(name), error && h("span", { class: "badge grave" }, error)),
    h("td", { class: "tokens" }, used && t("insight.usage", { input: number(usage.input_tokens), output: number(usage.output_tokens) })),
    h("td", { class: "cost" }, used && Number(usage.cost_usd) > 0 && money(Number(usage.cost_usd), "USD", 6)),
    h("td", { class: "start" }, milliseconds(start)),
    h("td", { class: "took" }, milliseconds(taken)),
    h("td", { class: "axis", "aria-hidden": "true" }, h("span", { class: "track" }, bar)),
  );
}

function named(step) {
  return has(`step.${step}`) ? t(`step.${step}`) : step;
}
