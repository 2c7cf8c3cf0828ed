/** The list of turns, newest first, with its filters; and how one comes to be where there is none. */

import { fill, h, set, write } from "../dom.js";
import { instant, milliseconds, moment, money, number } from "../format.js";
import { called, t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { me } from "../me.js";
import { sentence } from "../problem.js";
import { addressOf, addressOfPage } from "../route.js";
import { assistantNames } from "./assistant_name.js";
import { textButton } from "./buttons.js";
import { commandView, curl } from "./command.js";
import { writeMarked } from "./marks.js";
import { ownedHeader } from "./page_header.js";

const COLUMNS = ["began", "request", "assistant", "outcome", "tokens", "cost", "took"];

export function tracesView(actions) {
  const header = ownedHeader(actions, t("page.traces"), {}, t("traces.lead"));
  const filters = filterBar(actions);
  const notice = h("p", { class: "notice", role: "status" });
  const body = h("tbody");
  const rows = keyed(body, traceRow);
  const heads = COLUMNS.map((name) => h("th", { scope: "col", class: name }, t(`traces.column.${name}`)));
  const table = h("table", { class: "trace-table" }, h("thead", {}, h("tr", {}, heads)), body);
  const older = textButton(t("traces.older"), () => actions.page.list.older());
  const more = h("p", { class: "hint" }, t("traces.truncated"));
  const none = h("section", { class: "empty-state" });
  const column = h("div", { class: "wide" }, filters.node, table, older, more, none, notice);
  const node = h("div", { class: "page traces" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    filters.draw(state, now);
    if (now === last) return;
    last = now;
    const { items, truncated, loading, problem, session } = now;
    const empty = items.length === 0;
    const filtered = session !== null || now.assistant !== "" || now.errors;
    fill(
      notice,
      problem
        ? [sentence(problem), " ", textButton(t("again"), () => actions.page.list.refresh())]
        : loading
          ? t("app.loading")
          : empty && filtered && t("traces.nothing"),
    );
    set(notice, "hidden", !notice.hasChildNodes());
    set(table, "hidden", empty);
    set(older, "hidden", !truncated || session === null || empty);
    set(more, "hidden", !truncated || session !== null);
    set(none, "hidden", !empty || loading || Boolean(problem) || filtered);
    fill(none, beginning());
    rows(
      items.map((trace) => ({ key: trace.trace_id, trace })),
      assistantNames(state),
    );
  }

  return { node, draw, focus: header.focus, title: () => t("page.traces") };
}

function filterBar(actions) {
  const assistant = h("select", { on: { change: () => actions.page.list.filter({ assistant: assistant.value }) } });
  const errors = h("input", {
    type: "checkbox",
    on: { change: () => actions.page.list.filter({ errors: errors.checked }) },
  });
  const session = h("span", { class: "of-session" });
  const node = h(
    "div",
    { class: "filters", role: "group", "aria-label": t("traces.filters") },
    h("label", {}, t("traces.column.assistant"), " ", assistant),
    h("label", {}, errors, " ", t("traces.errors")),
    session,
  );
  let known = null;
  let of;

  function draw({ assistants }, now) {
    if (known !== assistants) {
      const names = assistants.map((each) => h("option", { value: each.name }, called(each.titles, each.name)));
      fill(assistant, h("option", { value: "" }, t("traces.all")), names);
      known = assistants;
    }
    assistant.value = now.assistant;
    errors.checked = now.errors;
    set(session, "hidden", now.session === null);
    if (of !== now.session && now.session !== null)
      fill(
        session,
        h("a", { href: addressOf(now.session) }, t("traces.of_session")),
        " ",
        h("a", { href: addressOfPage("traces") }, t("traces.of_all")),
      );
    of = now.session;
  }

  return { node, draw };
}

function traceRow() {
  const cells = Object.fromEntries(COLUMNS.map((name) => [name, h("td", { class: name })]));
  const time = h("time");
  const link = h("a");
  const speaker = h("span", { class: "speaker-of" });
  cells.began.append(time);
  cells.request.append(link, speaker);
  const node = h("tr", {}, Object.values(cells));

  function draw({ trace }, assistantName) {
    write(time, moment(trace.began_at));
    set(time, "datetime", trace.began_at);
    set(time, "title", instant(trace.began_at));
    writeMarked(link, trace.request || t("traces.no_request"), { still: true });
    set(link, "href", addressOfPage("traces", trace.trace_id));
    // Without a user the list is that of all of them.
    write(speaker, me().user ? "" : trace.speaker ?? "");
    write(cells.assistant, assistantName(trace.assistant));
    fill(cells.outcome, outcome(trace));
    write(cells.tokens, number(trace.usage.input_tokens + trace.usage.output_tokens));
    write(cells.cost, money(Number(trace.usage.cost_usd), "USD", 4));
    write(cells.took, milliseconds(Object.values(trace.steps).reduce((all, each) => all + each, 0)));
  }

  return { node, draw };
}

/** How a turn ended: stopped, with an error, with an answer that had to do without something, or with an answer. */
export function outcome({ error, stopped, degraded }) {
  if (stopped) return h("span", { class: "badge" }, t("badge.stopped"));
  if (error !== null) return h("span", { class: "badge grave" }, error);
  if (degraded.length) return h("span", { class: "badge", title: degraded.join(", ") }, t("traces.degraded"));
  return h("span", { class: "badge" }, t("traces.answered"));
}

function beginning() {
  return [
    h("h2", {}, t("traces.none")),
    h("p", {}, t("traces.none.what")),
    h("p", {}, h("a", { href: addressOf(null) }, t("traces.none.chat"))),
    h("p", {}, t("traces.none.http")),
    commandView(curl("v1/traces")),
  ];
}
