/** How much the policy took out of what was said before it was stored. */

import { h, set, write } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { tally } from "../marks.js";
import { icon } from "./icons.js";

export function takenView() {
  const text = h("span");
  const node = h("p", { class: "taken", hidden: true }, icon("lock"), text);

  function draw(redacted) {
    const { count, list } = tally(redacted);
    set(node, "hidden", count === 0);
    write(text, count ? t("taken.stored", { count, many: number(count), list }) : "");
  }

  return { node, draw };
}
