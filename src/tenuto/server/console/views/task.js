/** One task: how far it is, its steps, its board, what happened, and what one may do about it. */

import { fill, h, set, write } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { isNameless } from "../me.js";
import { sentence } from "../problem.js";
import { addressOf, addressOfPage } from "../route.js";
import { textButton } from "./buttons.js";
import { writeMarked } from "./marks.js";
import { ownedHeader } from "./page_header.js";
import { boardView, writeValue } from "./task_board.js";
import { graphView } from "./task_graph.js";
import { errorParts, statusView } from "./task_status.js";
import { stepsView } from "./task_steps.js";
import { timelineView } from "./task_timeline.js";

export function taskView(actions, ask) {
  const facts = factsView();
  const header = ownedHeader(actions, "", { alone: true }, facts.node);
  const bar = barView(actions, ask);
  const notice = h("p", { class: "notice", role: "alert" });
  const parts = [bar, graphView(), stepsView(actions), resultView(), boardView(), timelineView()];
  const body = h(
    "div",
    { class: "task-body" },
    parts.map((part) => part.node),
  );
  const back = h("a", { class: "back", href: addressOfPage("tasks") }, t("tasks.back"));
  const column = h("div", { class: "column" }, back, notice, body);
  const node = h("div", { class: "page task" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    if (now === last) return;
    last = now;
    const { detail, problem, refused } = now;
    const seen = detail !== null && problem?.code !== "task_not_found";
    writeMarked(header.heading, seen ? titleOf(detail) : t("tasks.task"));
    fill(notice, said(state, now, actions));
    set(notice, "hidden", seen && !problem && !refused);
    set(facts.node, "hidden", !seen);
    set(body, "hidden", !seen);
    if (!seen) return;
    for (const part of [facts, ...parts]) part.draw(now);
  }

  const title = ({ detail }) => (detail ? titleOf(detail) : t("tasks.task"));
  return { node, draw, focus: header.focus, title };
}

function titleOf({ goal, type }) {
  return goal || type;
}

/** What went wrong, with bringing the task or with doing something about it. */
function said(state, { detail, problem, refused }, actions) {
  if (problem?.code === "task_not_found" && isNameless(state))
    return [t("tasks.no_user.one"), " ", textButton(t("me.name"), () => actions.house.want(true))];
  if (problem) return [sentence(problem), " ", textButton(t("again"), () => actions.page.task.refresh())];
  return refused ? sentence(refused) : detail === null && t("app.loading");
}

/** Below the title: what kind of task, when it began, and the conversation that it came out of. */
function factsView() {
  const type = h("code");
  const time = h("time");
  const session = h("a", {}, t("tasks.session"));
  const node = h("span", { class: "task-facts" }, type, time, session);

  function draw({ detail }) {
    write(type, detail.type);
    write(time, moment(detail.created_at));
    set(time, "datetime", detail.created_at);
    set(time, "title", instant(detail.created_at));
    set(session, "hidden", detail.session_id === null);
    if (detail.session_id !== null) set(session, "href", addressOf(detail.session_id));
  }

  return { node, draw };
}

/** How far it is, why it failed, and what one may do about it. */
function barView(actions, ask) {
  const status = statusView();
  const how = h("span", { class: "hint" });
  const cancel = textButton(t("tasks.cancel"), stop, { class: "text-button grave" });
  const resume = textButton(t("tasks.resume"), again);
  const told = h("span", { role: "status", tabindex: -1 }, status.node);
  const why = h("p", { class: "why" });
  const node = h("section", {}, h("div", { class: "task-bar" }, told, how, cancel, resume), why);

  // A button that goes away would take the focus along.
  async function stop() {
    const yes = await ask({ title: t("tasks.cancel.title"), text: t("tasks.cancel.text"), yes: t("tasks.cancel") });
    if (!yes) return;
    told.focus();
    await actions.page.task.cancel(t("tasks.cancelled"));
  }

  function again() {
    told.focus();
    return actions.page.task.resume(null, t("tasks.resumed"));
  }

  function draw({ detail, live, busy }) {
    const ended = detail.completed_at !== null;
    status.draw(detail);
    fill(why, errorParts(detail.error && { ...detail.error, message: place(detail.error) }));
    write(how, ended ? "" : t(live ? "tasks.live" : "tasks.polled"));
    set(cancel, "hidden", ended);
    set(resume, "hidden", detail.status !== "failed" || detail.steps.length === 0);
    cancel.disabled = resume.disabled = busy;
  }

  return { node, draw };
}

/** The step at fault tells more about it. */
function place({ step, message }) {
  return step === null ? message : t("tasks.in_step", { step });
}

function resultView() {
  const value = h("pre", { tabindex: 0, "aria-label": t("tasks.result") });
  const node = h("section", { class: "result" }, h("h2", {}, t("tasks.result")), value);

  function draw({ detail }) {
    set(node, "hidden", detail.result === null);
    writeValue(value, detail.result);
  }

  return { node, draw };
}
