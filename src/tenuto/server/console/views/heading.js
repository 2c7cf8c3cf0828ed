/** Above the talk: its title, whom one talks to, and as which character they answer. */

import { h, set, write } from "../dom.js";
import { called, t } from "../i18n.js";
import { assistantOf } from "../state.js";
import { iconButton } from "./buttons.js";
import { writeMarked } from "./marks.js";
import { personaChoice } from "./persona_choice.js";

export function headingView(actions) {
  const title = h("h1");
  const whom = h("span", { class: "whom" });
  const model = h("span", { class: "chip", title: t("model.offline.why") }, t("model.offline"));
  const persona = personaChoice(actions);
  const menu = iconButton("menu", t("sessions.open"), () => actions.house.drawer(true), { class: "narrow" });
  const node = h("header", {}, menu, h("div", { class: "titles" }, title, h("p", {}, whom, model)), persona.node);

  function draw(state, talk) {
    const assistant = assistantOf(state, talk);
    writeMarked(title, talk?.title || t(talk?.id && !talk.problem ? "sessions.untitled" : "sessions.new"));
    write(whom, assistant ? called(assistant.titles, assistant.name) : "");
    set(model, "hidden", assistant?.model !== "offline");
    set(menu, "aria-expanded", String(state.drawer));
    persona.draw(assistant, state.choice.persona);
  }

  return { node, draw, focus: () => menu.focus() };
}
