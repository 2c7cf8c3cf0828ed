/**
 * A talk as a row of items: words, answers, and a line where a summary begins.
 *
 * The server keeps messages; tools that ran on the way to an answer are messages of their own there, and belong to
 * that answer here.
 */

import { attachmentsIn, withStored } from "./attachments.js";
import { changedAt, countsIn, fits, sumCounts } from "./marks.js";

/** The trace of an answer that is kept nowhere, as where nothing shall be remembered. */
export const UNKEPT = "";

export function fresh() {
  // Not randomUUID, which browsers only give to pages from this machine or over https.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function words(text, persona = null, attachments = []) {
  return { kind: "words", key: fresh(), text, attachments, persona, seq: null, at: null, redacted: {}, redactedAt: null };
}

/** An answer on its way, to a question that brings so many bytes of attachments. */
export function waiting(persona = null, sending = 0) {
  return { ...EMPTY, key: fresh(), persona, sending, status: "running" };
}

/** Stored messages, oldest first, as items. */
export function itemsOf(messages) {
  const items = [];
  let before = NOTHING;
  for (const message of messages) {
    const item = itemOf(message, before);
    if (item) {
      items.push(item);
      before = NOTHING;
    } else {
      before = {
        tools: [...before.tools, ...toolsIn(message)],
        attachments: [...before.attachments, ...attachmentsIn(message)],
        redacted: sumCounts(before.redacted, countsIn(message.metadata)),
      };
    }
  }
  return items;
}

// What tools did and showed, and what was taken out of it, on the way to an answer.
const NOTHING = { tools: [], attachments: [], redacted: {} };

const EMPTY = {
  kind: "answer",
  text: "",
  reasoning: "", // what the model thought before it answered, as far as it is shown
  persona: null,
  seq: null,
  status: "done", // running, done, stopped, failed
  steps: [], // of an assistant that works in steps, while the page is open
  tools: [],
  attachments: [], // what tools showed
  sending: 0, // how many bytes of attachments are on their way until the turn begins
  trace: null,
  model: "",
  offline: false,
  degraded: [],
  stopped: false, // whether it ends where it was stopped
  data: {},
  redacted: {}, // how many values of each name the policy took out
  redactedAt: null, // when it took them out of the stored text; null where that was before storing
  reply: null, // everything the last event told, while the page is open
  problem: null,
  causes: [], // why code of the operator or a model failed, while the page is open; for those who may see it
  again: null, // what to send once more, and its key
};

function itemOf(message, before) {
  const { id: key, seq, role, text, persona, sent_at: at, metadata } = message;
  const own = countsIn(metadata);
  const redactedAt = changedAt(metadata);
  const attachments = attachmentsIn(message);
  if (role === "user") return { kind: "words", key, seq, text, attachments, persona, at, redacted: own, redactedAt };
  if (role === "item")
    return message.parts.some((part) => part.type === "summary") ? { kind: "summary", key, seq } : null;
  if (role !== "assistant" || !text) return null;
  const { trace = null, model = "", offline = false, degraded = [], data = {}, stopped = false } = metadata;
  const redacted = sumCounts(before.redacted, own);
  const circumstances = { trace, model, offline, degraded, stopped, data, redacted, redactedAt };
  const shown = [...before.attachments, ...attachments].map((each, place) => ({ ...each, key: String(place) }));
  const way = { reasoning: thoughtsIn(message), tools: before.tools, attachments: shown };
  return { ...EMPTY, key, seq, text, persona, ...way, ...circumstances };
}

function thoughtsIn(message) {
  const thoughts = message.parts.filter((part) => part.type === "reasoning" && part.text);
  return thoughts.map((part) => part.text).join("\n\n");
}

function toolsIn(message) {
  const calls = message.parts.filter((part) => part.type === "tool_call");
  return calls.map((part) => ({ name: part.name, state: "done", milliseconds: null }));
}

/** The items of a talk, with the sequence numbers the store gave them meanwhile; more may have been said since then. */
export function numbered(items, messages) {
  const stored = itemsOf(messages);
  return items.map((item, place) => {
    if (item.seq !== null) return item;
    const found = item.kind === "answer" ? answerIn(stored, item) : wordsIn(stored, item, items[place + 1]);
    return found ? settled(item, found) : item;
  });
}

function answerIn(stored, { trace }) {
  return stored.find((each) => each.kind === "answer" && each.trace !== null && each.trace === trace);
}

/** Words are known by their answer; where they have none, by what they say. */
function wordsIn(stored, item, answer) {
  const before = stored[stored.indexOf(answer && answerIn(stored, answer)) - 1];
  if (before?.kind === "words") return before;
  return stored.find(
    (each, place) => each.kind === "words" && stored[place + 1]?.kind !== "answer" && fits(each.text, item.text),
  );
}

/** What was said or heard stays on screen as it was; the marks in what is stored are there when one comes back. */
function settled(item, { seq, at, redacted, redactedAt, attachments }) {
  return { ...item, seq, redacted, redactedAt, attachments: withStored(item.attachments, attachments), ...(at && { at }) };
}

/** The items of a talk after others changed it: those that are still stored stay as they are on screen. */
export function mergedItems(items, messages) {
  const stored = itemsOf(messages);
  const begins = stored[0]?.seq ?? 0;
  const known = new Map(items.filter((item) => item.seq !== null).map((item) => [item.seq, item]));
  const now = stored.map((item) => (known.get(item.seq)?.kind === item.kind ? kept(known.get(item.seq), item) : item));
  return [...items.filter((item) => item.seq !== null && item.seq < begins), ...now];
}

/** An item as it is on screen, but for attachments that were removed. */
function kept(item, { attachments = [] }) {
  const now = withStored(item.attachments ?? [], attachments);
  return now === item.attachments || item.kind === "summary" ? item : { ...item, attachments: now };
}

/** Whether the newest messages of a talk are on screen already, as they are now. */
export function isUpToDate(items, messages) {
  const stored = itemsOf(messages);
  const shown = items.filter(({ seq }) => seq !== null && seq >= (stored[0]?.seq ?? 0));
  const same = (item, place) => item.seq === shown[place].seq && kept(shown[place], item) === shown[place];
  return stored.length === shown.length && stored.every(same);
}

export function lastSeq(items) {
  return items.reduce((most, item) => Math.max(most, item.seq ?? 0), 0);
}
