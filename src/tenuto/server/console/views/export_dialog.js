/** Which format sessions are exported in. */

import { fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";

const FORMATS = ["json", "jsonl", "markdown"];

/** `ask(sessions)` resolves to a format, or to nothing. */
export function exportDialog() {
  const node = h("dialog", { class: "export", "aria-labelledby": "export-title" });
  let answered = () => {};
  node.addEventListener("close", () => answered(node.returnValue || null));

  function ask(sessions) {
    node.returnValue = "";
    const formats = FORMATS.map((format) =>
      h(
        "li",
        {},
        textButton(t(`sessions.export.${format}`), () => node.close(format)),
        h("span", { class: "hint" }, t(`sessions.export.${format}.why`)),
      ),
    );
    fill(
      node,
      h("h2", { id: "export-title" }, t("sessions.export.title", { count: sessions.length })),
      h("ul", {}, formats),
      h("p", { class: "choices" }, textButton(t("cancel"), () => node.close(""))),
    );
    node.showModal();
    return new Promise((resolve) => (answered = resolve));
  }

  return { node, ask };
}
