/** What was deleted last, for as long as that can be undone: by its button, or Ctrl+Z outside of a field. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { iconButton, textButton } from "./buttons.js";

export function undoView(actions) {
  const text = h("span", { id: "undo-what" });
  const button = textButton(t("undo"), () => actions.undo(), { title: "Ctrl+Z", "aria-describedby": "undo-what" });
  const wait = () => node.matches(":hover, :focus-within") || actions.deletion.wait();
  const node = h(
    "div",
    {
      class: "undo",
      hidden: true,
      role: "group",
      "aria-label": t("undo"),
      on: {
        pointerenter: () => actions.deletion.hold(),
        pointerleave: wait,
        focusin: () => actions.deletion.hold(),
        // The focus is at its next place only afterwards.
        focusout: () => setTimeout(wait),
        keydown: leave,
      },
    },
    text,
    button,
    iconButton("close", t("undo.done"), () => actions.deletion.commit()),
  );
  let shown = [];
  let place = null; // where the keyboard was
  let list = null; // and in which list: its row may be drawn anew meanwhile

  function draw({ deleted: { last } }) {
    if (last === shown) return;
    shown = last;
    if (last.length === 0) goBack();
    set(node, "hidden", last.length === 0);
    write(text, last.length ? said(last) : "");
    // One who deletes by keyboard is many stops away from here.
    const { activeElement } = document;
    if (last.length === 0 || !activeElement.matches(":focus-visible") || node.contains(activeElement)) return;
    place = activeElement;
    list = activeElement.closest(".sessions");
    button.focus();
  }

  function goBack() {
    if (!node.contains(document.activeElement)) return;
    const next = place?.isConnected ? place : list?.isConnected && list.querySelector("a");
    (next || document.getElementById("main")).focus();
  }

  function leave(event) {
    if (event.key !== "Escape") return;
    event.preventDefault();
    goBack();
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
