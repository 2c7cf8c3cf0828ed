/** Where one writes. Enter sends, or puts in line while an answer is made; Shift+Enter starts a new line. */

import { attachmentOf } from "../attachments.js";
import { h, set, write } from "../dom.js";
import { called, t } from "../i18n.js";
import { fresh } from "../items.js";
import { assistantOf } from "../state.js";
import { attachedView } from "./attached.js";
import { iconButton } from "./buttons.js";
import { icon } from "./icons.js";
import { queueView } from "./queue.js";

const TALLEST = 220;

export function composerView(actions) {
  const field = h("textarea", {
    rows: 1,
    "aria-label": t("talk.write"),
    "aria-describedby": "keys",
    enterkeyhint: "send",
  });
  const button = h("button", { class: "send", "aria-label": t("talk.send"), title: t("talk.send") }, icon("send"));
  const stop = h(
    "button",
    { type: "button", class: "send", "aria-label": t("talk.stop"), title: t("talk.stop") },
    icon("stop"),
  );
  const queue = queueView(actions, actions.write);
  const picker = h("input", { type: "file", multiple: true, hidden: true, "aria-label": t("attachment.add") });
  const clip = iconButton("clip", t("attachment.add"), () => picker.click(), { class: "attach" });
  const attached = attachedView(detach);
  const wrong = h("p", { class: "notice", role: "alert", hidden: true });
  const form = h(
    "form",
    { class: "composer", on: { submit: send } },
    wrong,
    attached.node,
    picker,
    clip,
    field,
    stop,
    button,
  );
  const node = h(
    "footer",
    {},
    h("div", { class: "column" }, queue.node, form, h("p", { id: "keys", class: "keys" }, t("talk.keys"))),
  );
  let talking = null;

  field.value = actions.draft.text;
  attached.draw(actions.draft.attachments);
  picker.addEventListener("change", () => {
    attach(picker.files);
    picker.value = ""; // the same file can be chosen again
  });
  field.addEventListener("paste", (event) => {
    const { files, types } = event.clipboardData;
    // Programs for texts and tables give a picture of what was copied along with its text.
    if (files.length === 0 || types.includes("text/plain")) return;
    event.preventDefault();
    attach(files);
  });
  field.addEventListener("input", () => {
    actions.draft.text = field.value;
    fit(field);
    offer();
  });
  field.addEventListener("keydown", (event) => {
    // While an input method is composing, Enter chooses characters.
    if (event.isComposing || event.keyCode === 229) return;
    if (event.key === "Enter" && !event.shiftKey) send(event);
  });
  stop.addEventListener("click", () => {
    actions.turns.stop(talking.key);
    field.focus();
  });

  function send(event) {
    event.preventDefault();
    const { attachments } = actions.draft;
    if (isEmpty() || !talking || talking.loading) return;
    const text = field.value.trim();
    field.value = actions.draft.text = "";
    fit(field);
    keep([]);
    actions.turns.say(text, attachments);
    offer();
  }

  function isEmpty() {
    return !field.value.trim() && actions.draft.attachments.length === 0;
  }

  /** Attach files to what is being written. */
  function attach(files) {
    const sound = [...files].filter(({ size }) => size > 0);
    const empty = [...files].filter(({ size }) => size === 0);
    keep([...actions.draft.attachments, ...sound.map((file) => attachmentOf(file, fresh()))]);
    const names = empty.map(({ name }) => name).join(", ");
    set(wrong, "hidden", empty.length === 0);
    write(wrong, empty.length > 0 ? t("attachment.empty", { names }) : "");
    field.focus();
  }

  function detach(attachment) {
    keep(actions.draft.attachments.filter((each) => each !== attachment));
    field.focus();
  }

  function keep(attachments) {
    actions.draft.attachments = attachments;
    attached.draw(attachments);
    set(wrong, "hidden", true);
    offer();
  }

  /** Show what was taken back: it is written on, before what is written already. */
  function follow() {
    attached.draw(actions.draft.attachments);
    if (field.value === actions.draft.text) return;
    field.value = actions.draft.text;
    fit(field);
    field.focus();
  }

  /** While an answer is made there is something to stop, and something to put in line once it is written. */
  function offer() {
    const running = Boolean(talking?.running);
    set(stop, "hidden", !running);
    set(button, "hidden", running && isEmpty());
    label(button, t(running ? "talk.queue" : "talk.send"));
  }

  function draw(state, talk) {
    const another = talk !== null && talk.key !== talking?.key;
    // The button that asked for an answer is gone while the answer is made, and the focus with it.
    const left = talk?.running && !talking?.running && document.activeElement === document.body;
    talking = talk;
    const assistant = assistantOf(state, talk);
    field.placeholder = assistant ? t("talk.placeholder", { name: partner(assistant, state.choice.persona) }) : "";
    follow();
    offer();
    queue.draw(talk);
    // Without a talk nothing could be sent.
    set(node, "hidden", talk === null || state.problem !== null || talk.problem?.code === "session_not_found");
    // Who may undo a deletion by keyboard is not called away from there.
    const held = document.activeElement.closest(".undo") !== null;
    if ((another || left) && !held && !state.drawer && matchMedia("(pointer: fine)").matches) field.focus();
  }

  return { node, draw, attach, takesFiles: () => node.checkVisibility() && talking !== null };
}

function label(button, name) {
  set(button, "aria-label", name);
  set(button, "title", name);
}

function partner({ personas, titles, name }, asked) {
  const character = personas.find((each) => each.id === asked);
  return character ? called(character.names, character.id) : called(titles, name);
}

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, TALLEST)}px`;
}
