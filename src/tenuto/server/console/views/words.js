/** What a user said, and a way to say it differently. */

import { fill, h, set } from "../dom.js";
import { instant } from "../format.js";
import { t } from "../i18n.js";
import { hasMarks } from "../marks.js";
import { sentence } from "../problem.js";
import { addressOf } from "../route.js";
import { isThere } from "../attachments.js";
import { attachedView } from "./attached.js";
import { attachmentsView } from "./attachments.js";
import { iconButton, textButton } from "./buttons.js";
import { codeBlock } from "./code_block.js";
import { marked } from "./marks.js";
import { takenView } from "./taken.js";

// Code between fences, as in Markdown; one that is not closed ends with the text.
const FENCED = /^(`{3,}|~{3,})([^\n`]*)\n([\s\S]*?)(?:^\1[ \t]*$\n?|(?![\s\S]))/gm;

export function wordsView(actions) {
  const text = h("div", { class: "said", dir: "auto" });
  const edit = iconButton("pen", t("talk.edit"), () => change());
  const taken = takenView();
  const old = h("p", { class: "old hint", hidden: true }, t("talk.edit.kept"), " ", h("a", {}, t("talk.edit.open")));
  const media = attachmentsView(actions);
  const look = [media.node, h("div", { class: "look" }, text, edit), old, taken.node];
  const node = h("article", { class: "words", "aria-label": t("talk.you") }, look);
  let shown = null;
  let behind = 0; // how many messages an edit removes
  let answering = false;

  function draw({ item, session, redacted, later, busy }) {
    media.draw(item.attachments, session);
    taken.draw(redacted, item.redactedAt);
    set(edit, "hidden", item.seq === null || busy);
    set(old, "hidden", !item.fork);
    if (item.fork) set(old.querySelector("a"), "href", addressOf(item.fork));
    behind = later;
    answering = busy;
    if (shown === item) return;
    if (shown?.text !== item.text) fill(text, said(item.text));
    set(text, "hidden", item.text === "" && item.attachments.length > 0);
    set(text, "title", item.at && instant(item.at));
    shown = item;
  }

  function change() {
    const field = h("textarea", { rows: 3, "aria-label": t("talk.edit") });
    field.value = shown.text;
    let attachments = shown.attachments.filter(isThere);
    const attached = attachedView((gone) => {
      attachments = attachments.filter((each) => each !== gone);
      attached.draw(attachments);
      field.focus();
    });
    attached.draw(attachments);
    const isEmpty = () => !field.value.trim() && attachments.length === 0;
    const close = () => {
      fill(node, look);
      edit.focus();
    };
    const wrong = h("p", { class: "notice", role: "alert" });
    // The form may be older than an answer that somebody else has asked for.
    const isHeldUp = () => {
      fill(wrong, answering && t("problem.session_busy"));
      return answering;
    };
    const send = (event) => {
      event.preventDefault();
      if (isHeldUp()) return;
      close();
      if (!isEmpty()) actions.turns.edit(shown, field.value.trim(), { attachments });
    };
    const sendAndKeep = async () => {
      if (isEmpty() || keep.disabled || isHeldUp()) return;
      keep.disabled = true;
      const { fork, problem } = await actions.turns.keepOld();
      keep.disabled = false;
      if (problem) return void fill(wrong, sentence(problem));
      close();
      actions.turns.edit(shown, field.value.trim(), { fork, attachments });
    };
    const keep = textButton(t("talk.edit.keep"), sendAndKeep, { hidden: behind === 0 });
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
      h(
        "span",
        { class: "hint" },
        behind > 0 && t("talk.edit.warning", { count: behind }),
        hasMarks(shown.text) && ` ${t("talk.edit.marks")}`,
      ),
      textButton(t("cancel"), close),
      keep,
      h("button", { class: "text-button strong" }, t("talk.send")),
    );
    // Shown attachments stay on the page, out of sight: a player that leaves it is not given its sound back.
    fill(node, media.node, h("form", { class: "editing", on: { submit: send } }, attached.node, field, row, wrong));
    field.focus();
  }

  return { node, draw };
}

/** A text as it was written, and what is between fences as blocks of code: nothing else is read as Markdown. */
function said(text) {
  const parts = [];
  let at = 0;
  for (const { index, 0: whole, 2: language, 3: code } of text.matchAll(FENCED)) {
    parts.push(marked(text.slice(at, index).replace(/\n$/, "")));
    parts.push(codeBlock(code.replace(/\n$/, ""), language, marked, code));
    at = index + whole.length;
  }
  return [...parts, marked(text.slice(at))];
}
