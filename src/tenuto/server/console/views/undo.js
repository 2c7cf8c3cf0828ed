/** What was deleted last, for as long as that can be undone: by its button, or Ctrl+Z outside of a field. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { iconButton, textButton } from "./buttons.js";

export function undoView(actions) {
  const text = h("span");
  const node = h(
    "div",
    {
      class: "undo",
      hidden: true,
      on: { pointerenter: () => actions.deletion.hold(), pointerleave: () => actions.deletion.wait() },
    },
    text,
    textButton(t("undo"), () => actions.undo(), { title: "Ctrl+Z" }),
    iconButton("close", t("undo.done"), () => actions.deletion.commit()),
  );

  function draw({ deleted: { last } }) {
    set(node, "hidden", last.length === 0);
    write(text, last.length ? said(last) : "");
  }

  /** The shortcut, for the whole page. */
  function press(event) {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (node.hidden || typing || event.key !== "z" || !(event.ctrlKey || event.metaKey) || event.shiftKey) return;
    event.preventDefault();
    actions.undo();
  }

  return { node, draw, press };
}

function said(last) {
  if (last.length > 1) return t("undo.deleted", { count: last.length });
  return t("undo.deleted.one", { title: spoken(last[0].title || t("sessions.untitled")) });
}
