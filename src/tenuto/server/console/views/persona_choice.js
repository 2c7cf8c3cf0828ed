/** Which character of an assistant the next message is for. */

import { fill, h, set } from "../dom.js";
import { called, t } from "../i18n.js";

export function personaChoice(actions) {
  const select = h("select", {
    "aria-label": t("assistant.persona"),
    on: { change: () => actions.house.address(select.value || null) },
  });
  const node = h("div", { class: "persona" }, h("span", { "aria-hidden": "true" }, t("assistant.persona")), select);
  let shown = null;

  function draw(assistant, persona) {
    const personas = assistant?.personas ?? [];
    set(node, "hidden", personas.length === 0);
    if (shown !== assistant) {
      const anyPersona = personas.length > 1 && h("option", { value: "" }, t("assistant.persona.any"));
      fill(
        select,
        anyPersona,
        personas.map(({ id, names }) => h("option", { value: id }, called(names, id))),
      );
      shown = assistant;
    }
    select.value = persona ?? (personas.length === 1 ? personas[0].id : "");
  }

  return { node, draw };
}
