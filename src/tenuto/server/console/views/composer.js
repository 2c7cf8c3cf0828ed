/** Where one writes. Enter sends, Shift+Enter starts a new line, Escape stops an answer. */

import { h, set } from "../dom.js";
import { called, t } from "../i18n.js";
import { assistantOf } from "../state.js";
import { icon } from "./icons.js";

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
  const form = h("form", { class: "composer", on: { submit: send } }, field, button, stop);
  const node = h(
    "footer",
    {},
    h("div", { class: "column" }, form, h("p", { id: "keys", class: "keys" }, t("talk.keys"))),
  );
  let talking = null;

  field.value = actions.draft.text;
  field.addEventListener("input", () => {
    actions.draft.text = field.value;
    fit(field);
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
    if (!text || !talking || talking.running || talking.loading) return;
    field.value = actions.draft.text = "";
    fit(field);
    actions.turns.say(text);
  }

  function draw(state, talk) {
    const another = talk !== null && talk.key !== talking?.key;
    // The button that asked for an answer is gone while the answer is made, and the focus with it.
    const left = talk?.running && !talking?.running && document.activeElement === document.body;
    talking = talk;
    const assistant = assistantOf(state, talk);
    field.placeholder = assistant ? t("talk.placeholder", { name: partner(assistant, state.choice.persona) }) : "";
    const running = Boolean(talk?.running);
    set(button, "hidden", running);
    set(stop, "hidden", !running);
    // Without a talk nothing could be sent.
    set(node, "hidden", talk === null || state.problem !== null || talk.problem?.code === "session_not_found");
    // Who may undo a deletion by keyboard is not called away from there.
    const held = document.activeElement.closest(".undo") !== null;
    if ((another || left) && !held && !state.drawer && matchMedia("(pointer: fine)").matches) field.focus();
  }

  return { node, draw };
}

function partner({ personas, titles, name }, asked) {
  const character = personas.find((each) => each.id === asked);
  return character ? called(character.names, character.id) : called(titles, name);
}

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, TALLEST)}px`;
}
