/** Above the talk: its title, who answers and as which character, where it was forked from, and when it expires. */

import { fill, h, set, write } from "../dom.js";
import { instant, until } from "../format.js";
import { called, t } from "../i18n.js";
import { addressOf } from "../route.js";
import { assistantOf } from "../state.js";
import { iconButton } from "./buttons.js";
import { marked, writeMarked } from "./marks.js";
import { modelChoice } from "./model_choice.js";
import { personaChoice } from "./persona_choice.js";

// One that stays longer than this says nothing of its end.
const NEAR = 24 * 3_600_000;

export function headingView(actions) {
  const title = h("h1");
  const whom = h("span", { class: "whom" });
  const model = h("span", { class: "chip", title: t("model.offline.why") }, t("model.offline"));
  const origin = h("span", { class: "origin", hidden: true });
  const expiry = h("span", { class: "chip expiry" });
  const persona = personaChoice(actions);
  const answering = modelChoice(actions);
  const menu = iconButton("menu", t("sessions.open"), () => actions.house.drawer(true), { class: "narrow" });
  const node = h("header", {}, menu, h("div", { class: "titles" }, title, h("p", {}, whom, model, expiry, origin)), answering.node, persona.node);

  let forked = null;

  function tellExpiry(at) {
    const soon = at !== null && new Date(at) - Date.now() < NEAR;
    set(expiry, "hidden", !soon);
    if (!soon) return;
    write(expiry, t("talk.expires", { when: until(at) }));
    set(expiry, "title", t("talk.expires.why", { at: instant(at) }));
  }

  function tellOrigin(fork) {
    set(origin, "hidden", fork === null);
    if (fork === null) return;
    const [before, after] = t("talk.forked").split("{title}");
    const named = fork.title === null ? t("talk.forked.gone") : marked(fork.title || t("sessions.untitled"), { still: true });
    const link = fork.title === null ? h("span", {}, named) : h("a", { href: addressOf(fork.session_id), dir: "auto" }, named);
    fill(origin, before, link, after);
  }

  function draw(state, talk) {
    const assistant = assistantOf(state, talk);
    writeMarked(title, talk?.title || t(talk?.id && !talk.problem ? "sessions.untitled" : "sessions.new"));
    write(whom, assistant ? called(assistant.titles, assistant.name) : "");
    set(model, "hidden", assistant?.model !== "offline");
    set(menu, "aria-expanded", String(state.drawer));
    tellExpiry(talk?.expires ?? null);
    if (forked !== (talk?.forkedFrom ?? null)) tellOrigin((forked = talk?.forkedFrom ?? null));
    persona.draw(assistant, state.choice.persona);
    answering.draw(state.models, state.choice.model);
  }

  return { node, draw, focus: () => menu.focus() };
}
