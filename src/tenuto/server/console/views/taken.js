/** How much the policy took out of what was said, before it was stored or later. */

import { h, set, write } from "../dom.js";
import { instant, number } from "../format.js";
import { t } from "../i18n.js";
import { tally } from "../marks.js";
import { icon } from "./icons.js";

export function takenView() {
  const text = h("span");
  const node = h("p", { class: "taken", hidden: true }, icon("lock"), text);

  function draw(redacted, redactedAt = null) {
    const { count, list } = tally(redacted);
    set(node, "hidden", count === 0);
    const phrase = redactedAt ? "taken.later" : "taken.stored";
    write(text, count ? t(phrase, { count, many: number(count), list, at: redactedAt && instant(redactedAt) }) : "");
  }

  return { node, draw };
}
