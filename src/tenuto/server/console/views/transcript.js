/** The talk, item by item. It follows the newest words as long as one reads there. */

import { fill, h, set, write } from "../dom.js";
import { called, t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { sumCounts } from "../marks.js";
import { sentence } from "../problem.js";
import { go } from "../route.js";
import { assistantOf } from "../state.js";
import { answerView } from "./answer.js";
import { textButton } from "./buttons.js";
import { causeView } from "./cause.js";
import { wordsView } from "./words.js";

const NEAR = 80;
const VIEWS = { words: wordsView, answer: answerView, summary: summaryView };

export function transcriptView(actions) {
  const log = h("div", { role: "log", "aria-label": t("talk.log"), "aria-live": "off", tabindex: "-1" });
  const rows = keyed(log, ({ item }) => drawnOnChange(VIEWS[item.kind](actions)));
  const earlier = textButton(t("talk.earlier"), () => actions.talks.older());
  const notice = h("p", { class: "notice", role: "alert" });
  const reason = h("span");
  const cause = h("span");
  const answer = textButton(t("talk.answer"), () => actions.turns.regenerate());
  const missing = h("p", { class: "notice missing" }, t("talk.missing"), " ", reason, " ", answer, cause);
  const node = h("section", { class: "transcript" }, h("div", { class: "column" }, earlier, log, missing, notice));
  let shown = null;

  function draw(state, talk) {
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR;
    const another = shown?.key !== talk?.key || (shown?.loading && !talk?.loading);
    const said = talk !== null && shown !== null && talk.items.length > shown.items.length && talk.running;
    const stay = !another && talk?.items[0] !== shown?.items[0] && holdPlace();
    rows(lines(state, talk));
    set(earlier, "hidden", !talk?.more);
    set(missing, "hidden", !unanswered(talk));
    if (shown?.unanswered !== talk?.unanswered || another) {
      write(reason, talk?.unanswered ? sentence(talk.unanswered) : "");
      fill(cause, talk?.unanswered && causeView(talk.unanswered));
    }
    set(log, "aria-busy", String(Boolean(talk?.running)));
    notify(state, talk);
    if (another || said || atEnd) node.scrollTop = node.scrollHeight;
    else if (stay) stay();
    shown = talk;
  }

  /** Earlier messages come above what is read: afterwards the item that was first stands where it stood. */
  function holdPlace() {
    const first = log.firstElementChild;
    if (!first) return null;
    const before = first.getBoundingClientRect().top;
    return () => {
      node.scrollTop += first.getBoundingClientRect().top - before;
      // The button was above it: the keyboard goes on from here, too.
      if (earlier.hidden && document.activeElement === document.body) log.focus({ preventScroll: true });
    };
  }

  function notify(state, talk) {
    const problem = state.problem ?? talk?.problem ?? null;
    const waiting = talk === null || (talk.loading && talk.items.length === 0);
    set(notice, "hidden", problem === null && !waiting);
    if (problem === null) return fill(notice, waiting ? t("app.loading") : "");
    const gone = problem.code === "session_not_found";
    const way = gone ? textButton(t("sessions.new"), () => go(null)) : textButton(t("again"), () => actions.start());
    return fill(notice, sentence(problem), " ", way);
  }

  return { node, draw };
}

function lines(state, talk) {
  const assistant = assistantOf(state, talk);
  const items = talk?.items ?? [];
  // How many messages follow each.
  const behind = new Array(items.length).fill(0);
  for (let place = items.length - 2; place >= 0; place--)
    behind[place] = behind[place + 1] + Number(items[place + 1].kind !== "summary");
  return items.map((item, place) => ({
    key: item.key,
    item,
    session: talk.id,
    name: nameOf(assistant, item.persona),
    later: behind[place],
    before: items[place - 1],
    after: items[place + 1],
    last: place === items.length - 1,
    busy: talk.running !== null,
  }));
}

/** A view that is drawn where its line differs from the last one: of a long talk, most of it stays while words come in. */
function drawnOnChange(view) {
  let shown = {};

  function draw(line) {
    if (Object.keys(line).every((name) => line[name] === shown[name])) return;
    shown = line;
    view.draw({ ...line, redacted: takenFrom(line.item, line.before, line.after) });
  }

  return { node: view.node, draw };
}

/**
 * What was taken out of words and their answer: it is told once, under the answer where there is one. What was changed
 * after it was stored is told in its place.
 */
function takenFrom(item, before, after) {
  const apart = item.redactedAt || after?.kind !== "answer" || after.redactedAt;
  if (item.kind === "words") return apart ? item.redacted : {};
  const joins = before?.kind === "words" && !before.redactedAt && !item.redactedAt;
  return sumCounts(joins ? before.redacted : {}, item.redacted ?? {});
}

function nameOf(assistant, persona) {
  const character = assistant?.personas.find((each) => each.id === persona);
  return character ? called(character.names, character.id) : assistant ? called(assistant.titles, assistant.name) : "";
}

function unanswered(talk) {
  return Boolean(talk && !talk.running && !talk.loading && talk.items.at(-1)?.kind === "words");
}

function summaryView() {
  return { node: h("p", { class: "divider" }, t("talk.summary")), draw() {} };
}
