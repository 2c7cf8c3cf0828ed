/** Which model answers the next messages, where this server lets people choose. */

import { fill, h, set } from "../dom.js";
import { t } from "../i18n.js";

export function modelChoice(actions) {
  const select = h("select", {
    "aria-label": t("insight.model"),
    on: { change: () => actions.house.answerWith(select.value || null) },
  });
  const node = h("div", { class: "persona" }, h("span", { "aria-hidden": "true" }, t("insight.model")), select);
  let shown = null;

  function draw(models, model) {
    set(node, "hidden", models.length === 0);
    if (shown !== models) {
      const own = h("option", { value: "" }, t("assistant.model.own"));
      fill(
        select,
        own,
        models.map((name) => h("option", { value: name }, name)),
      );
      shown = models;
    }
    select.value = model ?? "";
  }

  return { node, draw };
}
