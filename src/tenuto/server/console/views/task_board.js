/** The board of a task: what stands under each key, and who wrote it. */

import { h, set, write } from "../dom.js";
import { instant, moment } from "../format.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { writeMarked } from "./marks.js";

const MOST = 4000;

export function boardView() {
  const list = h("ul", { class: "board" });
  const rows = keyed(list, entryView);
  const none = h("p", { class: "hint" }, t("tasks.board.none"));
  const node = h("section", {}, h("h2", {}, t("tasks.board")), list, none);

  function draw({ id, board: { entries, locks } }) {
    const holders = new Map(locks.map((lock) => [lock.key, lock.holder]));
    set(none, "hidden", entries.length > 0);
    rows(entries.map((entry) => ({ key: `${id} ${entry.key}`, entry, holder: holders.get(entry.key) })));
  }

  return { node, draw };
}

function entryView() {
  const key = h("code", { class: "key" });
  const writer = h("span", { class: "writer" });
  const facts = h("span", { class: "hint" });
  const time = h("time", { class: "hint" });
  const value = h("pre", { tabindex: 0 });
  const node = h("li", {}, h("p", { class: "entry-head" }, key, writer, facts, time), value);

  function draw({ entry, holder }) {
    const { version, previous_writer: before } = entry;
    const parts = [
      t("tasks.version", { version }),
      before !== null && t("tasks.before", { writer: before }),
      holder && t("tasks.locked", { holder }),
    ];
    set(node, "data-key", entry.key);
    write(key, entry.key);
    write(writer, entry.writer);
    write(facts, parts.filter(Boolean).join(" · "));
    write(time, moment(entry.written_at));
    set(time, "datetime", entry.written_at);
    set(time, "title", instant(entry.written_at));
    set(value, "aria-label", t("tasks.value", { key: entry.key }));
    writeValue(value, entry.value);
  }

  return { node, draw };
}

/** A value of any kind as text: a text as it is, everything else as JSON. */
export function writeValue(element, value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  writeMarked(element, text.length > MOST ? `${text.slice(0, MOST)} …` : text);
}
