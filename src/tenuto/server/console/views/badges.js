/** Short remarks about an answer: who gave it, and what it had to do without. */

import { h } from "../dom.js";
import { has, t } from "../i18n.js";

export function badges({ model, offline, degraded, stopped }) {
  const named = model && model !== "none" && model !== "offline";
  return [
    named && h("span", { class: "badge" }, model),
    offline && h("span", { class: "badge", title: t("model.offline.why") }, t("badge.offline")),
    stopped && h("span", { class: "badge" }, t("badge.stopped")),
    ...degraded.map((what) => h("span", { class: "badge grave", data: { degraded: what } }, remark(what))),
  ];
}

/** The model of a turn and what it had to do without; the badge alone says that it was the offline model. */
export function modelOf(turn) {
  const remarks = badges({ ...turn, model: "", stopped: false }).filter(Boolean);
  return [turn.model !== "offline" && turn.model, ...remarks].filter(Boolean).flatMap((part) => [part, " "]);
}

function remark(what) {
  return has(`badge.${what}`) ? t(`badge.${what}`) : t("badge.other", { what });
}
