/** What somebody said, and a way to say it differently. */

import { fill, h, set } from "../dom.js";
import { instant } from "../format.js";
import { t } from "../i18n.js";
import { hasMarks } from "../marks.js";
import { iconButton, textButton } from "./buttons.js";
import { writeMarked } from "./marks.js";
import { takenView } from "./taken.js";

export function wordsView(actions) {
  const text = h("div", { class: "said" });
  const edit = iconButton("pen", t("talk.edit"), () => change());
  const taken = takenView();
  const look = [h("div", { class: "look" }, text, edit), taken.node];
  const node = h("article", { class: "words", "aria-label": t("talk.you") }, look);
  let shown = null;

  function draw({ item, redacted, busy }) {
    taken.draw(redacted, item.redactedAt);
    writeMarked(text, item.text);
    set(text, "title", item.at && instant(item.at));
    set(edit, "hidden", item.seq === null || busy);
    shown = item;
  }

  function change() {
    const field = h("textarea", { rows: 3, "aria-label": t("talk.edit") });
    field.value = shown.text;
    const close = () => {
      fill(node, look);
      edit.focus();
    };
    const send = (event) => {
      event.preventDefault();
      const said = field.value.trim();
      close();
      if (said) actions.turns.edit(shown, said);
    };
    field.addEventListener("keydown", (event) => {
      if (event.isComposing || event.keyCode === 229) return;
      if (event.key === "Enter" && !event.shiftKey) send(event);
      if (event.key !== "Escape") return;
      event.preventDefault();
      close();
    });
    const row = h(
      "p",
      { class: "choices" },
      h("span", { class: "hint" }, t("talk.edit.warning"), hasMarks(shown.text) && ` ${t("talk.edit.marks")}`),
      textButton(t("cancel"), close),
      h("button", { class: "text-button strong" }, t("talk.send")),
    );
    fill(node, h("form", { class: "editing", on: { submit: send } }, field, row));
    field.focus();
  }

  return { node, draw };
}
