/** One memory: its text, when and where it was said, why it was found; edit it, forget it. */

import { fill, h, set } from "../dom.js";
import { instant, moment, number } from "../format.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { addressOf } from "../route.js";
import { iconButton, textButton } from "./buttons.js";
import { marked } from "./marks.js";

const SHORT = 80;

export function memoryRow(actions, ask) {
  const text = h("p", { class: "memory-text", dir: "auto" });
  const facts = h("p", { class: "memory-facts" });
  const why = h("div", { class: "memory-why" });
  const pen = iconButton("pen", "", () => edit());
  const bin = iconButton("bin", "", () => forget());
  const look = [h("div", { class: "memory-body" }, text, facts, why), h("span", { class: "tools" }, pen, bin)];
  const node = h("li", {}, look);
  let shown = null;
  let editing = false;

  function draw({ memory, hit, own }) {
    if (shown === null || shown.text !== memory.text) fill(text, marked(memory.text));
    shown = memory;
    set(node, "data-kind", memory.kind);
    fill(facts, told(memory, own));
    fill(why, hit && explained(hit));
    set(why, "hidden", !hit);
    for (const [button, name] of [
      [pen, "memories.edit"],
      [bin, "memories.forget"],
    ]) {
      const label = t(name, { text: short(memory.text) });
      set(button, "aria-label", label);
      set(button, "title", label);
    }
  }

  function edit() {
    if (editing) return;
    editing = true;
    const memory = shown;
    const input = h("textarea", { rows: 2, maxlength: 4000, "aria-label": t("memories.edit.label") }, memory.text);
    const close = () => {
      editing = false;
      fill(node, look);
      pen.focus();
    };
    let saving = false;
    const save = async () => {
      const words = input.value.trim();
      if (saving) return;
      saving = true;
      const same = !words || words === memory.text;
      // What was refused can be written otherwise.
      if (same || (await actions.page.edit(memory.id, words, t("memories.edited")))) close();
      saving = false;
    };
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key !== "Escape" && !(event.key === "Enter" && !event.shiftKey)) return;
      event.preventDefault();
      event.stopPropagation();
      if (event.key === "Escape") close();
      else save();
    });
    const choices = h(
      "p",
      { class: "choices" },
      textButton(t("cancel"), close),
      textButton(t("save"), save, { class: "text-button strong" }),
    );
    fill(node, h("div", { class: "memory-edit" }, input, choices));
    input.focus();
    input.select();
  }

  async function forget() {
    const yes = await ask({
      title: t("memories.forget.title"),
      text: t("memories.forget.text", { text: short(shown.text) }),
      yes: t("memories.forget.yes"),
    });
    if (yes) await actions.page.forget(shown.id, t("memories.forgotten"));
  }

  return { node, draw };
}

function told(memory, own) {
  const { kind, said_at: said, session_id: session, mentions, valid_until: until, identity } = memory;
  // A session stays with the user who said it: nobody else can open it.
  const elsewhere = identity && identity !== own;
  return [
    h("span", { class: "chip" }, t(`memories.kind.${kind}`)),
    h("time", { datetime: said, title: instant(said) }, moment(said)),
    session && !elsewhere && h("a", { href: addressOf(session) }, t("memories.session")),
    !session && h("span", {}, t("memories.written")),
    elsewhere && h("span", { dir: "auto" }, t("memories.identity", { user: identity })),
    mentions > 1 && h("span", {}, t("memories.mentions", { count: mentions })),
    until && h("span", {}, t("memories.until", { date: moment(until) })),
  ];
}

/** A small bar for each part of the score, the words it shares with the question, and the score. */
function explained({ score, scores }) {
  const { lexical, vector, terms } = scores;
  const further = ["session", "period", "speaker"].filter((arm) => scores[arm] > 0);
  return [
    share("lexical", lexical),
    share("vector", vector),
    ...further.map((arm) => share(`arm_${arm}`, scores[arm])),
    terms.length > 0 && h("span", { class: "terms" }, t("memories.terms", { terms: terms.join(t("mark.comma")) })),
    h("span", {}, t("memories.score", { score: number(score, 2) })),
  ];
}

function share(arm, value) {
  const part = Math.min(Math.max(value, 0), 1);
  const name = t(`memories.${arm}`);
  const bar = h("span");
  bar.style.inlineSize = `${100 * part}%`;
  return h(
    "span",
    { class: "arm", role: "img", "aria-label": `${name} ${number(100 * part)} %`, data: { arm } },
    name,
    h("span", { class: "share" }, bar),
    number(part, 2),
  );
}

function short(text) {
  const plain = spoken(text);
  return plain.length > SHORT ? `${plain.slice(0, SHORT)}…` : plain;
}
