/** The table of sessions, of which only the rows on screen are elements; and how one begins where there is none. */

import { present } from "../actions/deletion.js";
import { fill, h, set, write } from "../dom.js";
import { money, number } from "../format.js";
import { t } from "../i18n.js";
import { sentence } from "../problem.js";
import { addressOf } from "../route.js";
import { assistantNames } from "./assistant_name.js";
import { textButton } from "./buttons.js";
import { commandView, curl } from "./command.js";
import { exportDialog } from "./export_dialog.js";
import { ownedHeader } from "./page_header.js";
import { COLUMNS, sessionTableRow } from "./session_table_row.js";
import { nothingFound, search } from "./sidebar.js";
import { windowList } from "./window_list.js";

export function sessionsView(actions) {
  const sums = h("span");
  const header = ownedHeader(actions, t("page.sessions"), {}, sums);
  const find = search(actions);
  const bar = selectionBar(actions, exportFiles);
  const notice = h("p", { class: "notice", role: "status" });
  const none = h("section", { class: "empty-state" });
  const files = exportDialog();
  const scroller = h("div", { class: "scroll" });
  const all = h("input", {
    type: "checkbox",
    "aria-label": t("sessions.select.all"),
    on: { change: () => actions.page.select(shown.map((session) => session.id), all.checked) },
  });
  const rows = windowList(scroller, () => sessionTableRow(actions, exportFiles), more);
  const table = h("div", { class: "session-table", role: "table", "aria-label": t("page.sessions") }, headings(all), rows.node);
  scroller.append(table, none);
  const node = h(
    "div",
    { class: "page sessions-page" },
    header.node,
    h("div", { class: "table-bar" }, find.node, bar.node, notice),
    scroller,
    files.node,
  );
  let shown = [];
  let broken = null;
  let found = ""; // the query that the rows answer

  async function exportFiles(sessions) {
    const format = await files.ask(sessions);
    if (format) await actions.page.export(sessions, format);
  }

  /** Further rows come by themselves; after a failure they wait for the button. */
  function more() {
    if (!broken) actions.sessions.more();
  }

  function draw(state, now) {
    header.draw(state);
    const { query, of, cursor, loading, problem } = state.sessions;
    if (of !== found) scroller.scrollTop = 0;
    found = of;
    shown = present(state);
    broken = problem;
    write(sums, now.stats ? summed(without(now.stats, state)) : "");
    find.draw(state);
    const selected = shown.filter((session) => now.selected.includes(session.id));
    bar.draw(selected);
    all.checked = selected.length > 0 && selected.length === shown.length;
    all.indeterminate = selected.length > 0 && selected.length < shown.length;
    const wrong = problem ?? now.problem;
    const empty = shown.length === 0;
    say(notice, wrong, retry, loading, empty ? nothingFound(state) : "");
    set(table, "hidden", empty);
    set(none, "hidden", !empty || loading || Boolean(wrong) || query !== "");
    if (!none.hidden && !none.firstChild) fill(none, beginning());
    set(table, "aria-rowcount", cursor === null ? String(shown.length + 1) : "-1");
    rows.draw(shown, now.selected, assistantNames(state));
  }

  /** The list again, and what is at its end once that has come. */
  function retry() {
    return Promise.all([actions.page.open(null), actions.sessions.refresh()]);
  }

  return { node, draw, focus: header.focus, title: () => t("page.sessions") };
}

function say(notice, problem, again, loading, nothing) {
  const text = problem ? sentence(problem) : loading ? t("app.loading") : nothing;
  set(notice, "hidden", !text);
  if (notice.firstChild?.textContent === text) return;
  fill(notice, h("span", {}, text), problem && [" ", textButton(t("again"), again)]);
}

/** The sums without sessions that are deleted on the page and, for as long as that can be undone, not on the server. */
function without(stats, { sessions, deleted }) {
  const gone = sessions.items.filter((session) => deleted.hidden.includes(session.id));
  const less = (name, of) => Number(stats[name]) - gone.reduce((all, session) => all + Number(session[of]), 0);
  return {
    sessions: stats.sessions - gone.length,
    messages: less("messages", "message_count"),
    tokens: less("tokens", "tokens"),
    cost_usd: less("cost_usd", "cost_usd"),
  };
}

function summed({ sessions, messages, tokens, cost_usd: cost }) {
  return t("sessions.sum", {
    count: sessions,
    sessions: number(sessions),
    messages: number(messages),
    tokens: number(tokens),
    cost: money(Number(cost)),
  });
}

function headings(all) {
  const names = COLUMNS.map((name) => h("span", { role: "columnheader", class: name }, t(`sessions.column.${name}`)));
  return h(
    "div",
    { class: "table-head", role: "rowgroup" },
    h(
      "div",
      { class: "table-row", role: "row", "aria-rowindex": "1" },
      h("span", { role: "columnheader", class: "check" }, all),
      names,
      h("span", { role: "columnheader", class: "tools" }, h("span", { class: "unseen" }, t("sessions.column.tools"))),
    ),
  );
}

function selectionBar(actions, exportFiles) {
  const count = h("span");
  let selected = [];
  const clear = () => actions.page.select(selected.map((session) => session.id), false);
  const remove = () => {
    const gone = selected;
    clear();
    actions.forget(gone);
  };
  const node = h(
    "div",
    { class: "selection", role: "group", "aria-label": t("sessions.selection") },
    count,
    textButton(t("sessions.export.several"), () => exportFiles(selected)),
    textButton(t("sessions.delete.several"), remove, { class: "text-button grave" }),
    textButton(t("sessions.select.none"), clear),
  );

  function draw(now) {
    selected = now;
    set(node, "hidden", now.length === 0);
    write(count, t("sessions.selected", { count: now.length }));
  }

  return { node, draw };
}

function beginning() {
  return [
    h("h2", {}, t("sessions.first")),
    h("p", {}, h("a", { href: addressOf(null) }, t("sessions.first.chat"))),
    h("p", {}, t("sessions.first.http")),
    commandView(curl("v1/chat", { message: "Hello!" })),
  ];
}
