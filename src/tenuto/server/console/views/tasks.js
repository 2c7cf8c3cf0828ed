/** The list of tasks, newest first; and how to start one where there is none. */

import { fill, h, set, write } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { isNameless, me } from "../me.js";
import { sentence } from "../problem.js";
import { addressOfPage, addressOfTask } from "../route.js";
import { textButton } from "./buttons.js";
import { writeMarked } from "./marks.js";
import { ownedHeader } from "./page_header.js";
import { EXAMPLE, planForm } from "./plan_form.js";
import { statusView } from "./task_status.js";

export function tasksView(actions) {
  const header = ownedHeader(actions, t("page.tasks"), { alone: true }, t("tasks.lead"));
  const notice = h("p", { class: "notice", role: "status" });
  const list = h("ul", { class: "task-list" });
  const rows = keyed(list, taskRow);
  const more = textButton(t("sessions.more"), () => actions.page.list.more());
  const none = h("section", { class: "first-task" });
  const section = h("section", {}, list, more);
  const open = textButton(t("plan.title"), () => actions.page.list.write(), { class: "text-button strong" });
  const start = h("div", { class: "plan" }, open);
  let form = null;
  const lacking = h("p", { class: "notice" }, t("tasks.extra"), " ", h("a", { href: addressOfPage("health") }, t("page.health")), t("tasks.extra.end"));
  const column = h("div", { class: "column" }, lacking, start, notice, section, none);
  const node = h("div", { class: "page tasks" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    set(lacking, "hidden", state.house?.plans !== false);
    if (now === last) return;
    last = now;
    const { items, writing, loading, problem } = now;
    lay(writing);
    const empty = items.length === 0;
    fill(notice, problem ? trouble(problem, actions) : loading && t("app.loading"));
    set(notice, "hidden", !problem && !loading);
    set(section, "hidden", empty);
    set(more, "hidden", !now.more);
    set(none, "hidden", !empty || loading || Boolean(problem));
    fill(none, beginning(state, actions));
    rows(items.map((task) => ({ key: task.id, task })));
  }

  /** The form in place of the button that opens it. */
  function lay(writing) {
    if (writing === (form !== null)) return;
    const inside = start.contains(document.activeElement);
    form = writing ? planForm(actions) : null;
    fill(start, form?.node ?? open);
    if (inside) (form ?? open).focus();
  }

  return { node, draw, focus: header.focus, title: () => t("page.tasks") };
}

function trouble(problem, actions) {
  return [sentence(problem), " ", textButton(t("again"), () => actions.page.list.refresh())];
}

function taskRow() {
  const status = statusView();
  const type = h("b");
  const goal = h("span", { class: "goal" });
  const time = h("time");
  const link = h("a", {}, status.node, type, goal, time);
  const node = h("li", {}, link);

  function draw({ task }) {
    status.draw(task);
    write(type, task.type);
    writeMarked(goal, task.goal, { still: true });
    write(time, moment(task.created_at));
    set(time, "datetime", task.created_at);
    set(time, "title", instant(task.created_at));
    set(link, "href", addressOfTask(task.id));
  }

  return { node, draw };
}

/** How to start one. Without a user there may be tasks, which are not seen. */
function beginning(state, actions) {
  const { user } = me();
  return [
    isNameless(state)
      ? h("p", {}, t("tasks.no_user"), " ", textButton(t("me.name"), () => actions.house.want(true)))
      : h("h2", {}, t("tasks.none")),
    h("p", {}, t("tasks.none.terminal")),
    command(`TENUTO_AGENTS=agents tenuto tasks run plan.toml${user && ` --user ${quoted(user)}`}`),
    h("p", {}, t("tasks.none.http")),
    command(request()),
  ];
}

function request() {
  const { key, user } = me();
  const headers = [key && '-H "Authorization: Bearer $TENUTO_KEY"', user && `-H ${quoted(`X-User-ID: ${user}`)}`];
  return [
    `curl ${new URL("v1/tasks", document.baseURI)}`,
    ...headers.filter(Boolean),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(EXAMPLE))}`,
  ].join(" \\\n  ");
}

/** A text as one word of a shell. */
function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function command(text) {
  return h("pre", { tabindex: 0 }, h("code", {}, text));
}
