/**
 * A talk as a row of items: words, answers, and a line where a summary begins.
 *
 * The server keeps messages; tools that ran on the way to an answer are messages of their own there, and belong to
 * that answer here.
 */

export function fresh() {
  // Not randomUUID, which browsers only give to pages from this machine or over https.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function words(text, persona = null) {
  return { kind: "words", key: fresh(), text, persona, seq: null, at: null };
}

/** An answer on its way. */
export function waiting(persona = null) {
  return { ...EMPTY, key: fresh(), persona, status: "running" };
}

/** Stored messages, oldest first, as items. */
export function itemsOf(messages) {
  const items = [];
  let tools = [];
  for (const message of messages) {
    const item = itemOf(message, tools);
    if (item) {
      items.push(item);
      tools = [];
    } else {
      tools = [...tools, ...toolsIn(message)];
    }
  }
  return items;
}

const EMPTY = {
  kind: "answer",
  text: "",
  persona: null,
  seq: null,
  status: "done", // running, done, stopped, failed
  tools: [],
  trace: null,
  model: "",
  offline: false,
  degraded: [],
  data: {},
  reply: null, // everything the last event told, while the page is open
  problem: null,
  again: null, // what to send once more, and its key
};

function itemOf(message, tools) {
  const { id: key, seq, role, text, persona, sent_at: at, metadata } = message;
  if (role === "user") return { kind: "words", key, seq, text, persona, at };
  if (role === "item")
    return message.parts.some((part) => part.type === "summary") ? { kind: "summary", key, seq } : null;
  if (role !== "assistant" || !text) return null;
  const { trace = null, model = "", offline = false, degraded = [], data = {} } = metadata;
  return { ...EMPTY, key, seq, text, persona, tools, trace, model, offline, degraded, data };
}

function toolsIn(message) {
  const calls = message.parts.filter((part) => part.type === "tool_call");
  return calls.map((part) => ({ name: part.name, state: "done", milliseconds: null }));
}

/** The items of a running talk, with the sequence numbers the store gave them meanwhile. */
export function numbered(items, messages) {
  const asked = messages.findLast((message) => message.role === "user");
  const given = messages.findLast((message) => message.role === "assistant" && message.metadata.trace);
  const last = items.findLastIndex((item) => item.kind === "words");
  return items.map((item, place) => {
    if (item.seq !== null) return item;
    if (place === last && asked?.text === item.text) return { ...item, seq: asked.seq, at: asked.sent_at };
    if (item.kind === "answer" && given && given.metadata.trace === item.trace) return { ...item, seq: given.seq };
    return item;
  });
}

export function lastSeq(items) {
  return items.reduce((most, item) => Math.max(most, item.seq ?? 0), 0);
}
