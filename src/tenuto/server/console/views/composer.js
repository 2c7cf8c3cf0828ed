/** Where one writes. Enter sends, or puts in line while an answer is made; Shift+Enter starts a new line. */

import { h, set } from "../dom.js";
import { called, t } from "../i18n.js";
import { assistantOf } from "../state.js";
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
  const queue = queueView(actions, takeBack);
  const form = h("form", { class: "composer", on: { submit: send } }, field, stop, button);
  const node = h(
    "footer",
    {},
    h("div", { class: "column" }, queue.node, form, h("p", { id: "keys", class: "keys" }, t("talk.keys"))),
  );
  let talking = null;

  field.value = actions.draft.text;
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
    const text = field.value.trim();
    if (!text || !talking || talking.loading) return;
    field.value = actions.draft.text = "";
    fit(field);
    actions.turns.say(text);
    offer();
  }

  /** What waited is written on, before what is written already. */
  function takeBack(text) {
    field.value = actions.draft.text = [text, field.value].filter(Boolean).join("\n");
    fit(field);
    offer();
    field.focus();
  }

  /** While an answer is made there is something to stop, and something to put in line once it is written. */
  function offer() {
    const running = Boolean(talking?.running);
    set(stop, "hidden", !running);
    set(button, "hidden", running && !field.value.trim());
    label(button, t(running ? "talk.queue" : "talk.send"));
  }

  function draw(state, talk) {
    const another = talk !== null && talk.key !== talking?.key;
    // The button that asked for an answer is gone while the answer is made, and the focus with it.
    const left = talk?.running && !talking?.running && document.activeElement === document.body;
    talking = talk;
    const assistant = assistantOf(state, talk);
    field.placeholder = assistant ? t("talk.placeholder", { name: partner(assistant, state.choice.persona) }) : "";
    offer();
    queue.draw(talk);
    // Without a talk nothing could be sent.
    set(node, "hidden", talk === null || state.problem !== null || talk.problem?.code === "session_not_found");
    // Who may undo a deletion by keyboard is not called away from there.
    const held = document.activeElement.closest(".undo") !== null;
    if ((another || left) && !held && !state.drawer && matchMedia("(pointer: fine)").matches) field.focus();
  }

  return { node, draw };
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
