/** What the model thought before an answer: folded, since it is not what it says. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";

export function reasoningView() {
  const text = h("p", { class: "plain", dir: "auto" });
  const node = h("details", { class: "reasoning", hidden: true }, h("summary", {}, t("talk.reasoning")), text);

  function draw({ reasoning }) {
    set(node, "hidden", !reasoning);
    write(text, reasoning);
  }

  return { node, draw };
}
