/** One session in the list: open, rename, delete. */

import { fill, h } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { addressOf } from "../route.js";
import { iconButton } from "./buttons.js";
import { marked } from "./marks.js";

export function sessionRow(actions, ask) {
  const node = h("li");
  let shown = null;
  let naming = false;

  function draw({ session }, open) {
    const news = shown?.session !== session;
    const current = session.id === open;
    const changed = news || shown.current !== current;
    shown = { session, current };
    // Not while somebody writes a title: the list may be brought anew meanwhile.
    if (changed && !naming) look(session);
  }

  function look(session) {
    const shownTitle = session.title || t("sessions.untitled");
    const title = spoken(shownTitle);
    fill(
      node,
      h(
        "a",
        { href: addressOf(session.id), title, "aria-current": shown.current && "page" },
        h("span", { class: "title" }, marked(shownTitle, { still: true })),
        h("time", { datetime: session.updated_at, title: instant(session.updated_at) }, moment(session.updated_at)),
      ),
      h(
        "span",
        { class: "tools" },
        iconButton("pen", t("sessions.rename", { title }), () => name(session)),
        iconButton("bin", t("sessions.delete", { title }), () => remove(session, title)),
      ),
    );
  }

  function name(session) {
    naming = true;
    const input = h("input", { value: session.title, maxlength: 200, "aria-label": t("sessions.name") });
    const done = (save) => {
      if (!naming) return;
      naming = false;
      const title = input.value.trim();
      look(shown.session);
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

  async function remove(session, title) {
    const yes = await ask({
      title: t("sessions.delete.title"),
      text: t("sessions.delete.text", { title }),
      yes: t("sessions.delete.yes"),
    });
    if (yes) await actions.forget(session.id);
  }

  return { node, draw };
}
