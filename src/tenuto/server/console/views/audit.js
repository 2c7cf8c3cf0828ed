/** Who revealed, fixed or erased, newest first. */

import { fill, h, set } from "../dom.js";
import { instant, number } from "../format.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";
import { worded } from "./policy.js";
import { refusal } from "./refusal.js";

const STEP = 50;

export function auditView(actions) {
  const notice = h("p", { class: "notice" });
  const rows = h("tbody");
  const head = ["at", "act", "by", "about"].map((name) => h("th", { scope: "col" }, t(`privacy.audit.${name}`)));
  const table = h("table", { class: "sinks audit" }, h("thead", {}, h("tr", {}, head)), rows);
  const more = textButton(t("sessions.more"), () => {
    limit += STEP;
    list();
  });
  const node = h("div", { class: "wide" }, notice, table, more);
  let limit = STEP;
  let shown = null;

  function list() {
    const { entries } = shown;
    fill(rows, entries.slice(0, limit).map(row));
    set(more, "hidden", entries.length <= limit);
  }

  function draw(now) {
    if (now === shown) return;
    shown = now;
    const { entries, loading, problem } = now;
    const empty = entries.length === 0;
    const state = t(loading ? "app.loading" : "privacy.audit.none");
    fill(notice, problem ? refusal(problem, "privacy.forbidden", actions) : state);
    set(notice, "hidden", !problem && !empty);
    set(table, "hidden", empty || Boolean(problem));
    list();
  }

  return { node, draw };
}

function row({ at, act, by, about }) {
  return h("tr", { data: { act } }, [
    h("td", {}, h("time", { datetime: at }, instant(at))),
    h("td", {}, worded("privacy.act", act)),
    h("td", {}, by),
    h("td", {}, facts(about)),
  ]);
}

/** Ids and counts, as text. */
function facts(about) {
  return Object.entries(about)
    .map(([name, value]) => `${name}: ${typeof value === "number" ? number(value) : plain(value)}`)
    .join(" · ");
}

function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
