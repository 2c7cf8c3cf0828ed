/** Turns: say something, hear the answer come in, stop it, have it again, or say something else instead. */

import { api } from "../api.js";
import { bytesToSend, isThere } from "../attachments.js";
import { bytes } from "../format.js";
import { called, t } from "../i18n.js";
import { UNKEPT, fresh, lastSeq, waiting, words } from "../items.js";
import { Problem } from "../problem.js";
import { noteInAddress } from "../route.js";
import { currentTalk } from "../state.js";
import { refused } from "./house.js";

// Titles are written behind the turn; this long after it they are there.
const TITLE_AFTER = 1500;
const MOST_TITLE = 120;

export function turnActions(store, talks, sessions, write) {
  const stoppers = new Map();
  const catching = new Map(); // by talk that is being brought up to date: whether more has happened meanwhile
  const stopping = new Set(); // the talks whose answer shall be stopped

  function answer(talkKey, itemKey, patch) {
    talks.change(talkKey, (talk) => ({
      items: talk.items.map((item) =>
        item.key === itemKey ? { ...item, ...(typeof patch === "function" ? patch(item) : patch) } : item,
      ),
    }));
  }

  /** One turn: put these items on screen, send the request unless its events come already, follow them to the end. */
  async function take(talk, items, again, events = null) {
    const pending = items.at(-1).key;
    const stopper = new AbortController();
    let held = false;
    let conflict = null;
    stoppers.set(talk.key, stopper);
    const { sending } = items.at(-1);
    talks.change(talk.key, { items, running: pending, problem: null });
    store.change({ told: sending ? t("attachment.sending", { size: bytes(sending) }) : t("talk.thinking") });
    try {
      await hear(talk.key, pending, events ?? api.chat(again.request, { key: again.key, signal: stopper.signal }));
    } catch (error) {
      const stopped = stopper.signal.aborted || error.code === "turn_stopped";
      const ended = stopped ? { status: "stopped" } : failed(error);
      held = !stopped;
      conflict = ended.problem?.code === "version_conflict" ? ended.problem : null;
      // The server keeps an old answer until the new one is there, and so does the page.
      answer(talk.key, pending, { ...again.kept, ...ended, again, key: pending });
      // What ended is told by the answer itself, which is an alert.
      store.change({ told: "" });
    }
    stoppers.delete(talk.key);
    stopping.delete(talk.key);
    if (gone(talk.key)) return;
    talks.change(talk.key, { running: null });
    if (conflict) return showMeanwhile(talk.key, again.request, conflict);
    await Promise.all([talks.settle(talk.key), sessions.refresh(), held ? null : next(talk.key), explain(talk.key, pending)]);
  }

  /** Others have said something that was not on screen: it is shown, and what an edit says is there to be sent again. */
  async function showMeanwhile(talkKey, { message, attachments = [] }, problem) {
    if (message !== undefined) write({ text: message, attachments });
    const events = await talks.load(talkKey);
    const talk = store.get().talks[talkKey];
    if (!talk) return;
    const following = events && anew(talk, events);
    talks.change(talkKey, (now) => ({ problem: now.problem ?? problem }));
    await following;
  }

  /** Why code of the server's operator or a model failed: the trace has it for those who may see it. */
  async function explain(talkKey, itemKey) {
    const item = store.get().talks[talkKey]?.items.find(({ key }) => key === itemKey);
    if (!item?.trace || !hasCause(item)) return;
    const causes = causesIn(await api.trace(item.trace).catch(() => ({})));
    if (causes.length && !gone(talkKey)) answer(talkKey, itemKey, { causes });
  }

  /** Whether another user is signed in by now: a talk that is being answered goes away for no other reason. */
  function gone(talkKey) {
    return !(talkKey in store.get().talks);
  }

  function failed(error) {
    const problem = Problem.from(error);
    refused(store, problem);
    return { status: "failed", problem };
  }

  /** Follow an answer; where the server that is read from stops, at another one. */
  async function hear(talkKey, itemKey, events) {
    try {
      await follow(talkKey, itemKey, events);
    } catch (error) {
      const id = error.code === "server_stopping" && store.get().talks[talkKey]?.id;
      const others = id ? await api.join(id).catch(() => null) : null;
      if (others === null) throw error;
      await follow(talkKey, itemKey, others);
    }
  }

  async function follow(talkKey, itemKey, events) {
    for await (const [name, told] of events) {
      if (gone(talkKey)) return;
      if (name === "start") started(talkKey, itemKey, told);
      else if (name === "delta") answer(talkKey, itemKey, (item) => ({ text: item.text + told.text }));
      else if (name === "reasoning") answer(talkKey, itemKey, (item) => ({ reasoning: item.reasoning + told.text }));
      else if (name === "step") step(talkKey, itemKey, told);
      else if (name === "tool") answer(talkKey, itemKey, (item) => ({ tools: withTool(item.tools, told) }));
      else if (name === "error") throw Problem.told(told);
      else if (name === "done") return done(talkKey, itemKey, told);
    }
    throw new Problem("cut");
  }

  function started(talkKey, itemKey, told) {
    answer(talkKey, itemKey, { trace: told.trace_id ?? UNKEPT, text: "", reasoning: "", steps: [], tools: [] });
    keep(talkKey, told);
    if (told.created) sessions.refresh();
    if (stopping.has(talkKey)) stop(talkKey);
  }

  function step(talkKey, itemKey, told) {
    answer(talkKey, itemKey, (item) => ({ steps: withStep(item.steps, told) }));
    if (told.state === "started") store.change({ told: called(told.titles, told.id) });
  }

  /** Stop an answer: the server keeps what was said so far, and the stream ends with it. */
  async function stop(talkKey) {
    const { id, items } = store.get().talks[talkKey];
    stopping.add(talkKey);
    if (items.at(-1).trace === UNKEPT) return stoppers.get(talkKey)?.abort();
    // One that has not begun is stopped when it begins.
    if (id) await api.stop(id).catch(() => stoppers.get(talkKey)?.abort());
  }

  /** The talk goes on in this session; unless nothing is kept that one could come back to. */
  function keep(talkKey, { session_id, trace_id }) {
    if (trace_id === null) return;
    talks.change(talkKey, { id: session_id });
    talks.queue(talkKey, store.get().talks[talkKey].queue);
    if (store.get().current === talkKey) noteInAddress(session_id);
  }

  function done(talkKey, itemKey, reply) {
    const { answer: text, reasoning, trace_id, model, offline, degraded, data, stopped } = reply;
    const trace = trace_id ?? UNKEPT;
    // The last event has the last word: an assistant may mend what was streamed.
    const kept = { text, reasoning, trace, model, offline, degraded, data, stopped, reply };
    answer(talkKey, itemKey, { status: "done", ...kept, again: null });
    // An answer that was there already, when its key came again, has no start.
    keep(talkKey, reply);
    talks.change(talkKey, { assistant: reply.assistant, title: reply.title });
    store.change({ told: text });
    setTimeout(sessions.refresh, TITLE_AFTER);
  }

  /** The model that was chosen in place of the assistant's own. */
  function answeredBy() {
    const { model } = store.get().choice;
    return model ? { model } : {};
  }

  /** Say something: now, or when the answer that is being made has ended and what waits already is said. */
  function say(text, attachments = []) {
    const { choice } = store.get();
    const { key, queue } = currentTalk(store.get());
    talks.queue(key, [...queue, { key: fresh(), text, persona: choice.persona, attachments }]);
    return next(key);
  }

  /** Say what has waited longest, unless an answer is being made, or a reload took its attachments. */
  function next(talkKey) {
    const talk = store.get().talks[talkKey];
    if (!talk || talk.running !== null || talk.queue.length === 0) return undefined;
    const [{ key, text, persona, attachments = [], lost = [] }, ...queue] = talk.queue;
    if (lost.length > 0) return undefined;
    const assistant = talk.assistant ?? store.get().choice.assistant;
    const whose = talk.id ? { session_id: talk.id } : { assistant };
    const request = { message: text, ...withAttachments(attachments), ...whose, ...addressed({ persona }), ...answeredBy() };
    if (!talk.id) talks.change(talkKey, { assistant });
    talks.queue(talkKey, queue);
    const said = words(text, persona, attachments);
    return take(talk, [...talk.items, said, waiting(persona, bytesToSend(attachments))], { request, key });
  }

  /** Take back what waits; returns its text and attachments. */
  function takeBack({ key, text, attachments = [] }) {
    const talk = currentTalk(store.get());
    talks.queue(
      talk.key,
      talk.queue.filter((each) => each.key !== key),
    );
    return { text, attachments };
  }

  /** Take back the last message, which the server did not take; returns its text and attachments. */
  function withdraw({ again }) {
    const { key, items } = currentTalk(store.get());
    talks.change(key, { items: items.slice(0, -2) });
    return { text: again.request.message, attachments: again.request.attachments };
  }

  /** Keep a talk as it is in a session of its own, before an edit. Returns the problem, or the id of that session. */
  async function keepOld() {
    const { id, title } = currentTalk(store.get());
    try {
      return { fork: (await api.fork(id, { title: title && t("talk.edit.old", { title }).slice(0, MOST_TITLE) })).id };
    } catch (error) {
      return failed(error);
    }
  }

  /** Say something else instead of an earlier message; what followed it is forgotten, but may be kept in a fork. */
  function edit(item, text, { fork = null, attachments = item.attachments.filter(isThere) } = {}) {
    const talk = currentTalk(store.get());
    const before = talk.items.slice(
      0,
      talk.items.findIndex((each) => each.key === item.key),
    );
    const whose = { session_id: talk.id, edit: item.seq, ...seen(talk) };
    const request = { message: text, ...withAttachments(attachments), ...whose, ...addressed(item), ...answeredBy() };
    const said = { ...words(text, item.persona, attachments), fork };
    return take(talk, [...before, said, waiting(item.persona)], { request, key: fresh() });
  }

  /** Open a talk, and follow the answer that is being made in it. */
  async function open(id) {
    const events = await talks.open(id);
    const talk = Object.values(store.get().talks).find((each) => each.id === id && each.running === null);
    if (events && talk) await anew(talk, events);
  }

  /** Follow what others say in the talk on screen. */
  async function catchUp(id) {
    const talk = currentTalk(store.get());
    if (talk?.id !== id || talk.running !== null || talk.loading) return;
    if (catching.has(talk.key)) {
      catching.set(talk.key, true);
      return;
    }
    let events;
    do {
      catching.set(talk.key, false);
      events = await talks.catchUp(talk.key);
    } while (!events && catching.get(talk.key));
    catching.delete(talk.key);
    const now = store.get().talks[talk.key];
    if (events && now?.running === null && now.items.some((item) => item.kind === "words")) await anew(now, events);
  }

  /** Answer the last words anew. No key: each time is meant to be another answer. */
  function regenerate() {
    return anew(currentTalk(store.get()));
  }

  function anew(talk, events = null) {
    const last = talk.items.findLastIndex((item) => item.kind === "words");
    const { persona } = talk.items[last];
    const request = { session_id: talk.id, regenerate: true, ...seen(talk), ...addressed({ persona }), ...answeredBy() };
    const kept = talk.items.slice(last + 1).findLast((item) => item.kind === "answer" && item.status === "done");
    return take(talk, [...talk.items.slice(0, last + 1), waiting(persona)], { request, key: null, kept }, events);
  }

  /** Send once more what failed or was stopped: by its key it is said once, however often it is sent. */
  function retry(item) {
    const talk = currentTalk(store.get());
    const sending = bytesToSend(item.again.request.attachments);
    return take(talk, [...talk.items.slice(0, -1), { ...waiting(item.persona, sending), key: item.key }], item.again);
  }

  return {
    open,
    catchUp,
    say,
    flush: () => next(currentTalk(store.get()).key),
    takeBack,
    withdraw,
    keepOld,
    edit,
    regenerate,
    retry,
    stop,
    /** Follow no answer any more, also none that is not on screen; the server completes them. */
    hush: () => stoppers.forEach((stopper) => stopper.abort()),
  };
}

function hasCause({ problem, degraded }) {
  return problem?.code === "assistant_failed" || degraded.includes("tools") || degraded.includes("fallback_model");
}

function causesIn({ tools = [], error_message: message = "" }) {
  const raised = tools.filter(({ exception }) => exception).map(({ name, exception }) => `${name}: ${exception}`);
  return [...raised, message].filter(Boolean);
}

function addressed({ persona }) {
  return persona ? { persona } : {};
}

/** The newest message on screen, so that nothing behind it is replaced; while numbers are still coming, it is not known. */
function seen({ items, through }) {
  return items.some(({ seq }) => seq === null) ? {} : { after_seq: Math.max(through, lastSeq(items)) };
}

function withAttachments(attachments) {
  return attachments.length > 0 ? { attachments } : {};
}

function withStep(steps, told) {
  const place = steps.findIndex((step) => step.id === told.id);
  return place === -1 ? [...steps, told] : steps.with(place, told);
}

function withTool(tools, { name, state, milliseconds = null }) {
  const running = tools.findIndex((tool) => tool.name === name && tool.state === "started");
  if (state === "started" || running === -1) return [...tools, { name, state, milliseconds }];
  return tools.map((tool, place) => (place === running ? { name, state, milliseconds } : tool));
}
