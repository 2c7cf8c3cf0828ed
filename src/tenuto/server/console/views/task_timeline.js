/** What happened to a task, in order of time. */

import { h, set, write } from "../dom.js";
import { clock, instant } from "../format.js";
import { has, t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { statusOf } from "./task_status.js";

export function timelineView() {
  const list = h("ol", { class: "timeline" });
  const rows = keyed(list, eventView);
  const node = h("section", {}, h("h2", {}, t("tasks.timeline")), list);

  function draw({ events }) {
    rows(events.map((event) => ({ key: event.id, event })));
  }

  return { node, draw };
}

function eventView() {
  const time = h("time");
  const text = h("span");
  const node = h("li", {}, time, text);

  function draw({ event }) {
    set(node, "data-type", event.type);
    write(time, clock(event.at));
    set(time, "datetime", event.at);
    set(time, "title", instant(event.at));
    write(text, said(event));
  }

  return { node, draw };
}

function said(event) {
  const { type, step, agent, key, version, attempts, error_code: code } = event;
  const status = statusOf({ status: event.status, error: code && { code } });
  const values = { step, agent: agent ?? t("tasks.person"), key, version, status: t(`status.${status}`) };
  const phrase = `event.${type}${status === "deleted" ? ".deleted" : ""}`;
  const sentence = has(phrase) ? t(phrase, values) : type;
  const rest = [attempts > 1 && t("tasks.attempts", { count: attempts }), code].filter(Boolean);
  return rest.length > 0 ? `${sentence} (${rest.join(t("mark.comma"))})` : sentence;
}
