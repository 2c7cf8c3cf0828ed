/** Before the first word: who can be talked to, and what one might ask. */

import { fill, h, set } from "../dom.js";
import { called, has, phrases, t, told } from "../i18n.js";
import { isNameless } from "../me.js";
import { assistantOf } from "../state.js";
import { textButton } from "./buttons.js";
import { commandView } from "./command.js";

export function beginningView(actions) {
  const choices = h("div", { class: "assistants", role: "radiogroup", "aria-labelledby": "whom" });
  const examples = h("div", { class: "examples" });
  const first = h("ul", { class: "first" });
  const needed = h("div", { class: "notice needed", role: "status" });
  const name = textButton(t("me.name"), () => actions.house.want(true));
  const unnamed = h("p", { class: "notice" }, t("me.unnamed"), " ", name);
  const node = h(
    "section",
    { class: "beginning" },
    h(
      "div",
      { class: "column" },
      h("p", { class: "lead" }, t("app.lead")),
      first,
      h("h2", { id: "whom" }, t("assistant.choose")),
      choices,
      needed,
      examples,
      unnamed,
    ),
  );
  let shown = [];

  function draw(state, talk) {
    const assistant = assistantOf(state, talk);
    set(unnamed, "hidden", !isNameless(state));
    const { items, loading, query } = state.sessions;
    set(first, "hidden", loading || query !== "" || items.length > 0);
    if (shown[0] === state.assistants && shown[1] === assistant) return;
    if (shown[0] !== state.assistants)
      fill(
        choices,
        state.assistants.map((each) => choice(each, actions)),
      );
    shown = [state.assistants, assistant];
    const points = ["stored", "seen", ...(isOffline(assistant) ? ["offline"] : [])];
    fill(
      first,
      points.map((each) => h("li", {}, t(`first.${each}`))),
    );
    for (const input of choices.querySelectorAll("input")) input.checked = input.value === assistant?.name;
    const missing = assistant?.missing;
    set(needed, "hidden", !missing);
    fill(needed, missing && whyMissing(missing));
    const asked = missing ? [] : phrases(`try.${assistant?.name}`);
    fill(
      examples,
      asked.length > 0 && h("span", {}, t("assistant.try")),
      asked.map((text) => example(text, actions)),
    );
  }

  return { node, draw };
}

function choice(assistant, actions) {
  return h(
    "label",
    {},
    h("input", {
      type: "radio",
      name: "assistant",
      value: assistant.name,
      on: { change: () => actions.house.choose(assistant.name) },
    }),
    h(
      "span",
      { class: "name" },
      called(assistant.titles, assistant.name),
      assistant.missing && [" ", h("span", { class: "badge grave" }, t(assistant.missing.install ? "missing.label" : "missing.file"))],
    ),
    h("span", { class: "about" }, about(assistant)),
    assistant.missing && h("code", { class: "about" }, assistant.missing.install ?? assistant.missing.cause),
  );
}

/** What to do about an assistant that takes no turns; why its file cannot be loaded is told to operators alone. */
function whyMissing({ install, cause, advice }) {
  if (install) return [t("missing.why"), commandView(install)];
  if (!cause) return t("missing.file.why");
  return [t("missing.file.cause"), " ", h("code", { lang: "en", dir: "ltr" }, cause), " ", h("span", { lang: "en" }, `${advice}.`)];
}

/** What an assistant does; where the offline model answers for it, that may be less than its description says. */
function about(assistant) {
  const phrase = `about.offline.${assistant.name}`;
  return isOffline(assistant) && has(phrase) ? t(phrase) : told(assistant.description);
}

function isOffline(assistant) {
  return assistant?.model === "offline";
}

function example(text, actions) {
  return h("button", { type: "button", class: "example", on: { click: () => actions.turns.say(text) } }, text);
}
