/** The page of API keys: the list, the form for a new one, and its secret, once. */

import { fill, h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { me } from "../me.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";
import { keyForm } from "./key_form.js";
import { keyRow } from "./key_row.js";
import { newKeyView } from "./new_key.js";
import { pageHeader } from "./page_header.js";
import { refusal } from "./refusal.js";

export function keysView(actions, ask) {
  const header = pageHeader(actions, t("page.keys"), t("keys.lead"));
  const notice = h("p", { class: "notice", role: "status" });
  const refused = h("p", { class: "grave", role: "alert" });
  const list = h("ul", { class: "key-list" });
  const rows = keyed(list, () => keyRow(actions, ask));
  const none = h("p", { class: "hint" });
  const more = textButton(t("sessions.more"), () => actions.page.more());
  const created = newKeyView(actions);
  const form = keyForm(actions);
  const listed = h("section", {}, h("h2", {}, t("keys.list")), list, none, more);
  const column = h("div", { class: "column" }, notice, created.node, listed, form.node, refused);
  const node = h("div", { class: "page api-keys" }, header.node, h("div", { class: "scroll" }, column));
  let last = null;

  function draw(state, now) {
    header.draw(state);
    form.draw(state, now);
    if (now === last) return;
    last = now;
    const { items, cursor, loading, problem } = now;
    const allowed = !problem && !loading;
    fill(notice, problem ? refusal(problem, "keys.forbidden", actions) : loading && t("app.loading"));
    set(notice, "hidden", allowed);
    set(listed, "hidden", !allowed || now.first);
    set(form.node, "hidden", !allowed || now.created !== null);
    set(more, "hidden", cursor === null);
    const own = ownKeyId();
    rows(items.map((key) => ({ key: key.id, one: key, own: key.id === own })));
    write(none, t("keys.none"));
    set(none, "hidden", items.length > 0);
    created.draw(now);
    write(refused, now.refused ? sentence(now.refused) : "");
    set(refused, "hidden", !now.refused);
  }

  return { node, draw, focus: header.focus, title: () => t("page.keys") };
}

/** The id of the key that this page uses; the part before the random one is no secret. */
function ownKeyId() {
  return /^tnt_([0-9A-Za-z]+)_/.exec(me().key)?.[1] ?? null;
}
