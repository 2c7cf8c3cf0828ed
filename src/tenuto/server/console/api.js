/** The server's routes, as functions. Addresses are relative, so the page also works behind a path of its own. */

import { encoded } from "./attachments.js";
import { identity } from "./me.js";
import { Problem } from "./problem.js";
import { eventsOf } from "./sse.js";

const PAGE = 50;
const DEGRADED = "tenuto-degraded";

let told = () => {};

/** Tell `listener` with every answer whether the server had to do without its store. */
export function onAnswer(listener) {
  told = listener;
}

/** A page of sessions; one that a search found by what was said in it has its best message as `match`. `titles` are searched alone. */
async function sessions({ query = "", cursor = null, limit = PAGE, titles = false } = {}) {
  const ask = () => json("GET", `v1/sessions?${asked({ limit, [titles ? "title" : "q"]: query, cursor })}`);
  let page = await ask();
  // A search reads so many sessions with new messages at most; the next one goes on, unless the rest cannot be read.
  for (let left = Infinity; page.unsearched > 0 && page.unsearched < left; ) {
    left = page.unsearched;
    page = await ask();
  }
  if (!page.matches) return page;
  return { ...page, sessions: page.sessions.map((each) => ({ ...each, match: page.matches[each.id]?.[0] })) };
}

export const api = {
  health: () => json("GET", "healthz"),
  ready: () => request("GET", "readyz"),
  assistants: () => json("GET", "v1/assistants"),
  sessions,
  session: (id) => json("GET", at(id)),
  messages: (id, { before = null, after = null } = {}) =>
    json("GET", `${at(id)}/messages?${asked({ limit: PAGE, before, after, summaries: true })}`),
  rename: (id, title) => json("PATCH", at(id), { title }),
  remove: (id, { keepalive = false } = {}) => request("DELETE", at(id), undefined, { keepalive }),
  fork: (id, wish = {}) => json("POST", `${at(id)}/fork`, wish),
  export: async (id, format) => (await request("GET", `${at(id)}/export?format=${format}`)).blob(),
  attachment: async (id, attachment) => (await request("GET", attachmentAt(id, attachment))).blob(),
  removeAttachment: (id, attachment) => json("DELETE", attachmentAt(id, attachment)),
  scope: () => json("GET", "v1/scope"),
  stats: () => json("GET", "v1/stats"),
  status: () => json("GET", "v1/status"),
  usage: (days) => json("GET", `v1/analytics/usage?${asked({ days })}`),
  topics: (days, limit) => json("GET", `v1/analytics/topics?${asked({ days, limit })}`),
  privacy: () => json("GET", "v1/privacy"),
  memories: ({ kind = null, cursor = null } = {}) =>
    json("GET", `v1/memories?${asked({ limit: PAGE, kind, cursor })}`),
  preferences: async () => (await json("GET", "v1/memories/preferences")).preferences,
  searchMemories: (query) => json("POST", "v1/memories/search", { query, limit: 20 }),
  addMemory: (memory) => json("POST", "v1/memories", memory),
  editMemory: (id, change) => json("PATCH", memoryAt(id), change),
  forgetMemory: (id) => request("DELETE", memoryAt(id)),
  tasks: ({ cursor = null, limit = PAGE } = {}) => json("GET", `v1/tasks?${asked({ limit, cursor, newest_first: true })}`),
  runPlan: async (body, key) => (await request("POST", "v1/tasks", body, { headers: { "Idempotency-Key": key } })).json(),
  task: (id) => json("GET", taskAt(id)),
  board: (id) => json("GET", `${taskAt(id)}/board`),
  timeline: async (id) => (await json("GET", `${taskAt(id)}/timeline`)).events,
  cancelTask: (id) => json("POST", `${taskAt(id)}/cancel`),
  resumeTask: (id, step) => json("POST", `${taskAt(id)}/resume`, step === null ? {} : { from_step: step }),
  answerStep: (id, step, value) => json("POST", `${taskAt(id)}/input/${encodeURIComponent(step)}`, { value }),
  taskEvents,
  events,
  stop: (id) => json("POST", `${at(id)}/stop`),
  join,
  traces: (filter) => json("GET", `v1/traces?${asked({ limit: 100, brief: true, ...filter })}`),
  trace: (id) => json("GET", `v1/traces/${encodeURIComponent(id)}?text=true`),
  chat,
};

/** Say something; the answer comes event by event. The same `key` never says it twice. */
async function* chat({ attachments = [], ...body }, { key, signal }) {
  const headers = key ? { "Idempotency-Key": key } : {};
  const brought = attachments.length > 0 && { attachments: await Promise.all(attachments.map(encoded)) };
  const response = await request("POST", "v1/chat", { ...body, ...brought, stream: true }, { headers, signal });
  yield* eventsOf(response.body);
}

/** The events of the answer that is being made in a session, from its start on; nothing where none is. */
async function join(id) {
  const response = await request("GET", `${at(id)}/stream`);
  return response.status === 204 ? null : eventsOf(response.body);
}

/** What changes in one's sessions, as it happens; in the named one also by other processes. */
async function* events(id, signal) {
  const response = await request("GET", `v1/events?${asked({ session_id: id })}`, undefined, { signal });
  yield* eventsOf(response.body);
}

/** What happens to a task, as it happens, from behind the event `after` on. The stream ends with the task. */
async function* taskEvents(id, { after, signal }) {
  const headers = after ? { "Last-Event-ID": after } : {};
  const response = await request("GET", `${taskAt(id)}/events`, undefined, { headers, signal });
  if (!response.body) return; // the task has ended, and its last event was seen
  for await (const [name, told] of eventsOf(response.body)) {
    if (name === "error") throw Problem.told(told);
    yield told;
  }
}

async function json(method, path, body) {
  return (await request(method, path, body)).json();
}

async function request(method, path, body, { headers = {}, signal, keepalive = false } = {}) {
  const response = await fetch(path, {
    method,
    signal,
    keepalive,
    headers: { ...identity(), ...headers, ...(body && { "Content-Type": "application/json" }) },
    body: body && JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
  });
  told(response.headers.has(DEGRADED));
  if (!response.ok) throw await Problem.of(response);
  return response;
}

function at(id) {
  return `v1/sessions/${encodeURIComponent(id)}`;
}

function attachmentAt(id, attachment) {
  return `${at(id)}/attachments/${encodeURIComponent(attachment)}`;
}

function memoryAt(id) {
  return `v1/memories/${encodeURIComponent(id)}`;
}

function taskAt(id) {
  return `v1/tasks/${encodeURIComponent(id)}`;
}

function asked(parameters) {
  return new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== ""));
}

export { json, request };
