/** What waits for the end of an answer, above the field: it can be taken back, and be sent where it was held up. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { textButton } from "./buttons.js";
import { writeMarked } from "./marks.js";

/** `take(message)` gets what is taken back. */
export function queueView(actions, take) {
  const list = h("ol");
  const rows = keyed(list, () => rowView(actions, take));
  const why = h("span");
  const send = textButton(t("queue.send"), () => actions.turns.flush());
  const node = h(
    "section",
    { class: "queue", hidden: true, "aria-label": t("queue.title") },
    list,
    h("p", {}, why, send),
  );

  function draw(talk) {
    const queue = talk?.queue ?? [];
    set(node, "hidden", queue.length === 0);
    rows(queue.map((item) => ({ key: item.key, item })));
    const incomplete = queue[0]?.lost?.length > 0;
    write(why, t(incomplete ? "queue.incomplete" : talk?.running ? "queue.waits" : "queue.held"));
    set(send, "hidden", Boolean(talk?.running) || incomplete);
  }

  return { node, draw };
}

function rowView(actions, take) {
  const text = h("span", { class: "waits", dir: "auto" });
  const back = textButton(t("queue.back"), () => take(actions.turns.takeBack(shown)));
  const attached = h("span", { class: "hint" });
  const node = h("li", {}, text, attached, back);
  let shown = null;

  function draw({ item }) {
    shown = item;
    const { attachments = [], lost = [] } = item;
    const count = attachments.length;
    writeMarked(text, item.text, { still: true });
    const names = lost.map((name) => name || t("attachment.file")).join(", ");
    write(attached, lost.length > 0 ? t("queue.lost", { names }) : count > 0 ? t("attachment.count", { count }) : "");
    const named = item.text || attachments.map(({ name }) => name).join(", ") || names;
    set(back, "aria-label", t("queue.back.one", { text: named.slice(0, 40) }));
  }

  return { node, draw };
}
