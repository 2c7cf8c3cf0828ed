/** One session in the list: open, rename, delete. */

import { fill, h, set, write } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { me } from "../me.js";
import { addressOf } from "../route.js";
import { iconButton } from "./buttons.js";
import { writeExcerpt } from "./excerpt.js";
import { writeMarked } from "./marks.js";
import { titleField } from "./title_field.js";

export function sessionRow(actions) {
  const title = h("span", { class: "title" });
  const owner = h("span", { class: "owner" });
  const time = h("time");
  const said = h("span", { class: "excerpt" });
  const link = h("a", {}, title, said, owner, time);
  const pen = iconButton("pen", "", () => name(shown));
  const bin = iconButton("bin", "", () => remove(shown));
  const look = [link, h("span", { class: "tools" }, pen, bin)];
  const node = h("li", {}, look);
  let shown = null; // the session of this row

  // Written into what is there, and not made anew: a list is brought often, and the focus may be in it.
  function draw({ session }, open) {
    const spelled = titleOf(session);
    const told = { title: spoken(spelled) };
    writeMarked(title, spelled, { still: true });
    // Without a user the list is that of all of them.
    write(owner, me().user ? "" : session.user ?? "");
    writeExcerpt(said, session.match);
    write(time, moment(session.updated_at));
    set(time, "datetime", session.updated_at);
    set(time, "title", instant(session.updated_at));
    set(link, "href", addressOf(session.id));
    set(link, "title", told.title);
    set(link, "aria-current", session.id === open && "page");
    label(pen, t("sessions.rename", told));
    label(bin, t("sessions.delete", told));
    shown = session;
  }

  function name(session) {
    const close = (byKey) => {
      fill(node, look);
      if (byKey) pen.focus();
    };
    const input = titleField(session.title, { close, save: (title) => actions.sessions.rename(session.id, title) });
    fill(node, input);
    input.focus();
    input.select();
  }

  function remove(session) {
    focusBeside(node);
    actions.forget([session]);
  }

  return { node, draw };
}

/** The row beside one that goes gets the focus. */
export function focusBeside(node) {
  (node.nextElementSibling ?? node.previousElementSibling)?.querySelector("a").focus();
}

export function titleOf(session) {
  return session.title || t("sessions.untitled");
}

export function label(button, name) {
  set(button, "aria-label", name);
  set(button, "title", name);
}
