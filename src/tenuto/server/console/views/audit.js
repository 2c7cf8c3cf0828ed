/** Who revealed, fixed or erased, newest first. */

import { fill, h, set } from "../dom.js";
import { instant, number } from "../format.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";
import { worded } from "./policy.js";
import { countsOf } from "./receipt.js";
import { refusal } from "./refusal.js";

const STEP = 50;

export function auditView(actions) {
  const notice = h("p", { class: "notice" });
  const list = h("ul", { class: "audit" });
  const more = textButton(t("sessions.more"), () => {
    limit += STEP;
    show();
  });
  const node = h("div", {}, notice, list, more);
  let limit = STEP;
  let shown = null;

  function show() {
    const { entries } = shown;
    fill(list, entries.slice(0, limit).map(row));
    set(more, "hidden", entries.length <= limit);
  }

  function draw(now) {
    if (now === shown) return;
    shown = now;
    const { entries, loading, problem } = now;
    const state = t(loading ? "app.loading" : "privacy.audit.none");
    fill(notice, problem ? refusal(problem, "privacy.forbidden", actions) : state);
    set(notice, "hidden", !problem && entries.length > 0);
    show();
  }

  return { node, draw };
}

function row({ at, act, by, about }) {
  const line = [h("b", {}, worded("privacy.act", act)), h("span", {}, by), h("time", { datetime: at }, instant(at))];
  return h("li", { data: { act } }, h("p", { class: "audit-line" }, line), h("p", { class: "hint" }, facts(about)));
}

/** Ids and counts, as text. The digest of a user is on the receipt. */
function facts({ counts, user_digest: _, ...about }) {
  const named = Object.entries(about).map(([name, value]) => `${worded("privacy.about", name)}: ${plain(value)}`);
  return [...named, counts && countsOf(counts)].filter(Boolean).join(" · ");
}

function plain(value) {
  if (typeof value === "number") return number(value);
  return Array.isArray(value) ? value.join(" ") : String(value);
}
