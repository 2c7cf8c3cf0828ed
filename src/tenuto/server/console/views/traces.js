/** The list of turns, newest first, with its filters; and how one comes to be where there is none. */

import { NO_FILTER } from "../actions/traces.js";
import { fill, h, set, write } from "../dom.js";
import { instant, milliseconds, moment, money, number } from "../format.js";
import { called, has, t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { me } from "../me.js";
import { sentence } from "../problem.js";
import { addressOf, addressOfPage } from "../route.js";
import { assistantNames } from "./assistant_name.js";
import { textButton } from "./buttons.js";
import { commandView, curl } from "./command.js";
import { writeMarked } from "./marks.js";
import { ownedHeader } from "./page_header.js";

const COLUMNS = ["began", "request", "user", "assistant", "outcome", "tokens", "cost", "took"];
const CHOICES = ["assistant", "model", "outcome", "period"];
const FILTERS = ["user", ...CHOICES, "since", "until"];
const OUTCOMES = ["answered", "degraded", "stopped", "failed"];
const PERIODS = ["1", "24", "168", "720", "custom"];

export function tracesView(actions) {
  const header = ownedHeader(actions, t("page.traces"), {}, t("traces.lead"));
  const filters = filterBar(actions);
  const notice = h("p", { class: "notice", role: "status" });
  const body = h("tbody");
  const rows = keyed(body, traceRow);
  const heads = COLUMNS.map((name) => h("th", { scope: "col", class: name }, t(`traces.column.${name}`)));
  const table = h("table", { class: "trace-table" }, h("thead", {}, h("tr", {}, heads)), body);
  const older = textButton(t("traces.older"), () => actions.page.list.older());
  const end = h("p", { class: "hint" }, t("traces.exhausted"));
  const none = h("section", { class: "empty-state" });
  const column = h("div", { class: "wide" }, filters.node, table, older, end, none, notice);
  const node = h("div", { class: "page traces" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    filters.draw(state, now);
    if (now === last) return;
    last = now;
    const { items, truncated, exhausted, loading, problem, session } = now;
    const empty = items.length === 0;
    const filtered = session !== null || isFiltered(now.filter);
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
    set(older, "hidden", !truncated || empty);
    set(end, "hidden", !(exhausted || (truncated && empty)));
    // The list of one user needs no column for it.
    set(table, "data-one-user", Boolean(me().user));
    set(none, "hidden", !empty || loading || Boolean(problem) || filtered);
    fill(none, beginning());
    rows(
      items.map((trace) => ({ key: trace.trace_id, trace })),
      assistantNames(state),
    );
  }

  return { node, draw, focus: header.focus, title: () => t("page.traces") };
}

/** What to list: each choice is made at once. */
function filterBar(actions) {
  const change = (name) => (event) => actions.page.list.filter({ [name]: event.target.value });
  const fields = Object.fromEntries(CHOICES.map((name) => [name, h("select", { on: { change: change(name) } })]));
  const users = h("datalist", { id: "trace-users" });
  fields.user = h("input", {
    list: "trace-users",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: t("traces.all"),
    on: { change: (event) => actions.page.list.filter({ user: event.target.value.trim() }) },
  });
  for (const name of ["since", "until"])
    fields[name] = h("input", { type: "datetime-local", on: { change: change(name) } });
  const labels = Object.fromEntries(
    FILTERS.map((name) => [name, h("label", {}, t(`traces.filter.${name}`), fields[name])]),
  );
  const clear = textButton(t("traces.clear"), () => actions.page.list.filter(NO_FILTER));
  const session = h("span", { class: "of-session" });
  const node = h(
    "div",
    { class: "filters", role: "group", "aria-label": t("traces.filters") },
    Object.values(labels),
    users,
    clear,
    session,
  );
  let known = {};
  let of;

  function draw({ assistants, sessions }, { filter, models, users: speakers, session: id }) {
    if (known.assistants !== assistants || known.models !== models || known.items !== sessions.items) {
      choices(
        "assistant",
        assistants.map((each) => [each.name, called(each.titles, each.name)]),
      );
      const named = assistants.flatMap((each) => each.model.split(", "));
      const all = [...new Set([...named, ...models, filter.model])].filter(Boolean);
      choices(
        "model",
        all.map((name) => [name, name === "none" ? t("traces.model.none") : name]),
      );
      choices(
        "outcome",
        OUTCOMES.map((name) => [name, t(`traces.outcome.${name}`)]),
      );
      choices(
        "period",
        PERIODS.map((name) => [name, t(`traces.period.${name}`)]),
      );
      const people = new Set([...speakers, ...sessions.items.map((each) => each.user).filter(Boolean)]);
      fill(
        users,
        [...people].sort().map((value) => h("option", { value })),
      );
      known = { assistants, models, items: sessions.items };
    }
    for (const name of FILTERS) if (fields[name] !== document.activeElement) fields[name].value = filter[name];
    // One user sees one user's.
    set(labels.user, "hidden", Boolean(me().user));
    for (const name of ["since", "until"]) set(labels[name], "hidden", filter.period !== "custom");
    set(clear, "hidden", !isFiltered(filter));
    set(session, "hidden", id === null);
    if (of !== id && id !== null)
      fill(
        session,
        h("a", { href: addressOf(id) }, t("traces.of_session")),
        " ",
        h("a", { href: addressOfPage("traces") }, t("traces.of_all")),
      );
    of = id;
  }

  function choices(name, pairs) {
    const chosen = fields[name].value;
    fill(
      fields[name],
      h("option", { value: "" }, t("traces.all")),
      pairs.map(([value, text]) => h("option", { value }, text)),
    );
    fields[name].value = chosen;
  }

  return { node, draw };
}

function isFiltered(filter) {
  return Object.values(filter).some(Boolean);
}

function traceRow() {
  const cells = Object.fromEntries(COLUMNS.map((name) => [name, h("td", { class: name })]));
  const time = h("time");
  const link = h("a");
  cells.began.append(time);
  cells.request.append(link);
  set(cells.user, "dir", "auto");
  const node = h("tr", {}, Object.values(cells));

  function draw({ trace }, assistantName) {
    write(time, moment(trace.began_at));
    set(time, "datetime", trace.began_at);
    set(time, "title", instant(trace.began_at));
    writeMarked(link, trace.request || t("traces.no_request"), { still: true });
    set(link, "href", addressOfPage("traces", trace.trace_id));
    write(cells.user, trace.user ?? "");
    write(cells.assistant, assistantName(trace.assistant));
    fill(cells.outcome, outcome(trace));
    write(cells.tokens, number(trace.usage.input_tokens + trace.usage.output_tokens));
    write(cells.cost, money(Number(trace.usage.cost_usd), "USD", 4));
    write(cells.took, milliseconds(Object.values(trace.steps).reduce((all, each) => all + each, 0)));
  }

  return { node, draw };
}

/** How a turn ended: stopped, with an error (of a model by its reason), with an answer that had to do without something,
 * or with an answer. */
export function outcome({ error, reason, stopped, degraded }) {
  if (stopped) return h("span", { class: "badge" }, t("badge.stopped"));
  if (error !== null) return h("span", { class: "badge grave", title: error }, named(reason ?? error));
  if (degraded.length) return h("span", { class: "badge", title: degraded.join(", ") }, t("traces.degraded"));
  return h("span", { class: "badge" }, t("traces.answered"));
}

/** The word of a reason or an error, where there is one. */
function named(code) {
  return has(`failure.${code}`) ? t(`failure.${code}`) : code;
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
