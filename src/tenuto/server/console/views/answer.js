/** An answer: its words as they come, what tools did for it, what it is made of, and what one may do about it. */

import { fill, h, set, write } from "../dom.js";
import { bytes, milliseconds } from "../format.js";
import { called, has, t } from "../i18n.js";
import { UNKEPT } from "../items.js";
import { sentence } from "../problem.js";
import { writeProse } from "../prose.js";
import { addressOfPage } from "../route.js";
import { attachmentsView } from "./attachments.js";
import { iconButton, textButton } from "./buttons.js";
import { badges } from "./badges.js";
import { copyButton } from "./copying.js";
import { causesView, causeView } from "./cause.js";
import { extras } from "./extras.js";
import { insightView } from "./insight.js";
import { reasoningView } from "./reasoning.js";
import { takenView } from "./taken.js";

export function answerView(actions) {
  const parts = {
    speaker: h("p", { class: "speaker" }),
    steps: h("ol", { class: "work" }),
    tools: h("ul", { class: "runs" }),
    text: h("div", { class: "prose" }),
    extras: h("div", { class: "extras" }),
    notice: h("p", { class: "notice", role: "alert" }),
    causes: h("div", { class: "causes" }),
    badges: h("span", { class: "badges" }),
  };
  const reasoning = reasoningView();
  const media = attachmentsView(actions);
  const insight = insightView(actions);
  const anew = iconButton("again", t("talk.regenerate"), () => actions.turns.regenerate());
  const taken = takenView();
  const copy = copyButton(() => shown.item.text, t("talk.copy"));
  const meta = h("div", { class: "meta" }, insight.button, copy, anew, parts.badges);
  const node = h(
    "article",
    { class: "answer" },
    parts.speaker,
    parts.steps,
    parts.tools,
    media.node,
    reasoning.node,
    parts.text,
    parts.extras,
    parts.notice,
    parts.causes,
    meta,
    taken.node,
    insight.node,
  );
  let shown = {};

  function draw({ item, session, name, redacted, last, busy }) {
    media.draw(item.attachments, session);
    write(parts.speaker, name);
    taken.draw(redacted, item.redactedAt);
    set(copy, "hidden", !item.text);
    set(anew, "hidden", !last || busy || item.status !== "done" || item.trace === UNKEPT);
    const againNow = last && !busy;
    if (shown.item === item && shown.again === againNow) return;
    set(node, "data-status", item.status);
    // One that failed or was stopped has an account too: its own, or that of the answer from before.
    set(meta, "hidden", item.status === "running" || (item.status !== "done" && !item.trace));
    const { steps } = item;
    if (shown.item?.text !== item.text || shown.item?.status !== item.status || shown.item.steps !== steps) say(item);
    if (shown.item?.steps !== steps)
      fill(
        parts.steps,
        steps.map((step) => run({ ...step, name: step.id })),
      );
    if (shown.item?.tools !== item.tools) fill(parts.tools, item.tools.map(run));
    if (shown.item?.data !== item.data) fill(parts.extras, extras(item.data));
    fill(parts.badges, badges(item));
    notify(item, againNow);
    reasoning.draw(item);
    if (shown.item?.causes !== item.causes) fill(parts.causes, item.causes.length > 0 && causesView(item));
    insight.draw(item);
    shown = { item, again: againNow };
  }

  function say(item) {
    const waiting = item.status === "running" && !item.text;
    // A step that runs says what happens.
    if (waiting && item.steps.some((step) => step.state === "started")) fill(parts.text);
    else if (waiting && item.sending && item.trace === null) fill(parts.text, sendingView(item.sending));
    else if (waiting)
      fill(parts.text, h("p", { class: "thinking" }, h("span", { class: "unseen" }, t("talk.thinking"))));
    else writeProse(parts.text, item.text);
  }

  function notify(item, againNow) {
    const wrong = item.status === "stopped" || item.status === "failed";
    set(parts.notice, "hidden", !wrong);
    if (!wrong) return fill(parts.notice);
    const again = againNow && textButton(t("again"), () => actions.turns.retry(item));
    // Operators see there what is wrong with the model, and what to do.
    const health = item.problem?.reason && h("a", { href: addressOfPage("health") }, t("page.health"));
    const back = againNow && isWithdrawable(item) && textButton(t("queue.back"), () => actions.write(actions.turns.withdraw(item)));
    return fill(parts.notice, why(item), " ", again, " ", back, " ", health, item.status === "failed" && causeView(item.problem));
  }

  return { node, draw };
}

/** Whether a message with attachments did not get as far as a turn: without one of them, the server may take it. */
function isWithdrawable({ status, trace, again }) {
  const { attachments = [], edit } = again?.request ?? {};
  return status === "failed" && trace === null && attachments.length > 0 && edit === undefined;
}

function sendingView(size) {
  const told = t("attachment.sending", { size: bytes(size) });
  return h("p", { class: "sending" }, told, " ", h("progress", { "aria-label": told }));
}

/** Why there is no answer, or no other than before. */
function why({ status, problem, again }) {
  if (status === "stopped") return t(again?.kept ? "talk.stopped.kept" : "talk.stopped");
  const then = again?.kept ? t("talk.kept") : problem.reason && t("reason.stored");
  return then ? `${sentence(problem)} ${then}` : sentence(problem);
}

function run({ name, titles = {}, state, milliseconds: taken }) {
  const what = has(`tool.${name}`) ? t(`tool.${name}`) : called(titles, name);
  const how =
    state === "started" ? t("tool.running") : state === "failed" ? t("tool.failed") : taken && milliseconds(taken);
  return h("li", { data: { state } }, what, how && h("span", {}, ` ${how}`));
}
