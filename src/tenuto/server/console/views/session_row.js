/** One session in the list: open, rename, delete. */

import { fill, h, set, write } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { me } from "../me.js";
import { addressOf } from "../route.js";
import { iconButton } from "./buttons.js";
import { writeMarked } from "./marks.js";

export function sessionRow(actions, ask) {
  const title = h("span", { class: "title" });
  const owner = h("span", { class: "owner" });
  const time = h("time");
  const link = h("a", {}, title, owner, time);
  const pen = iconButton("pen", "", () => name(shown));
  const bin = iconButton("bin", "", () => remove(shown));
  const look = [link, h("span", { class: "tools" }, pen, bin)];
  const node = h("li", {}, look);
  let shown = null; // the session of this row
  let naming = false;

  // Written into what is there, and not made anew: a list is brought often, and the focus may be in it.
  function draw({ session }, open) {
    const spelled = titleOf(session);
    const told = { title: spoken(spelled) };
    writeMarked(title, spelled, { still: true });
    // Without a user the list is that of all of them.
    write(owner, me().user ? "" : session.user ?? "");
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
    naming = true;
    const input = h("input", { value: session.title, maxlength: 200, "aria-label": t("sessions.name") });
    const done = (save) => {
      if (!naming) return;
      naming = false;
      const title = input.value.trim();
      fill(node, look);
      if (save && title && title !== session.title) actions.sessions.rename(session.id, title);
    };
    input.addEventListener("blur", () => done(true));
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key !== "Escape" && event.key !== "Enter") return;
      // The button that gets the focus shall not be pressed by the same key, nor the page hear it.
      event.preventDefault();
      event.stopPropagation();
      done(event.key === "Enter");
      node.querySelector("button").focus();
    });
    fill(node, input);
    input.focus();
    input.select();
  }

  async function remove(session) {
    const title = spoken(titleOf(session));
    const yes = await ask({
      title: t("sessions.delete.title"),
      text: t("sessions.delete.text", { title }),
      yes: t("sessions.delete.yes"),
    });
    if (yes) await actions.forget(session.id);
  }

  return { node, draw };
}

function titleOf(session) {
  return session.title || t("sessions.untitled");
}

function label(button, name) {
  set(button, "aria-label", name);
  set(button, "title", name);
}
