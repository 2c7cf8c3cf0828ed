// A program that uses the client against the server at the given address, with the given key.

import assert from "node:assert/strict";
import { mock } from "node:test";
import { setImmediate } from "node:timers/promises";

import { connect, TenutoError } from "../src/index.ts";
import type { ChatEvent } from "../src/index.ts";

const [url = "", key = ""] = process.argv.slice(2);
let lose = 0;
let cut = false;
const sent: string[] = [];

/** The way to the server, which loses answers after the request has arrived. */
const faulty: typeof fetch = async (input, init) => {
  sent.push(`${init?.method} ${new URL(String(input)).pathname}`);
  const response = await fetch(input, init);
  if (cut) return new Response(breakOff(response));
  if (lose === 0) return response;
  lose -= 1;
  await response.arrayBuffer();
  throw new TypeError("lost");
};

/** The first piece of an answer; then the connection is lost. */
function breakOff(response: Response): ReadableStream {
  cut = false;
  const reader = response.body?.getReader();
  let pieces = 0;
  return new ReadableStream({
    async pull(controller) {
      if (pieces++ > 0) return controller.error(new TypeError("lost"));
      controller.enqueue((await reader?.read())?.value);
    },
  });
}

const ann = connect(url, { key, user: "änn/1", fetch: faulty });
assert.equal((await ann.scope()).user, "änn/1");

// Turns.
const turn = await ann.begin("Where is the tile museum?", { idempotencyKey: "北京" });
assert.deepEqual([turn.state, turn.window.map((one) => one.text)], ["opened", ["Where is the tile museum?"]]);
assert.ok((await ann.renew(turn)).lease_until);
lose = 1;
const done = await ann.finish(turn, "In Lisbon.", { usage: { tokens: 7, cost_usd: "0.000000021" } });
assert.deepEqual([done.session.message_count, done.session.cost_usd], [2, "0.000000021"]);
const again = await ann.begin("Where is the tile museum?", { session: turn.session.id, idempotencyKey: "北京" });
assert.deepEqual([again.state, again.reply.map((one) => one.text)], ["finished", ["In Lisbon."]]);

// Sessions; a write whose answer was lost happens once.
const id = turn.session.id;
lose = 1;
const added = await ann.sessions.append(id, [{ role: "user", text: "More", colour: "blue" }]);
assert.deepEqual([added.session.message_count, added.messages.at(-1)?.["colour"]], [3, "blue"]);
assert.equal((await ann.sessions.change(id, { title: "Museums" })).title, "Museums");
const page = await ann.sessions.messages(id, { limit: 2, head: true });
assert.deepEqual([page.messages.map((one) => one.seq), page.more_before, page.session?.title], [[2, 3], true, "Museums"]);
const fork = await ann.sessions.fork(id, { at: 2 });
assert.equal(fork.message_count, 2);
assert.equal((await ann.sessions.list({ q: "museum" })).sessions.length, 2);

// Errors, and another user.
await assert.rejects(ann.as({ user: "bob" }).sessions.get(id), { code: "session_not_found", status: 404 });
await assert.rejects(ann.as({ tenant: "evil" }).sessions.get(id), { code: "scope_mismatch", status: 403 });
lose = 1;
sent.length = 0;
await assert.rejects(ann.sessions.truncate(id, { after: 2 }), TenutoError);
assert.equal(sent.length, 1);

// An answer as it happens, and its replay.
const question = { message: "My train leaves at 7:40.", session_id: id };
const events: ChatEvent[] = [];
for await (const event of ann.stream(question, { idempotencyKey: "k" })) events.push(event);
const last = events.at(-1);
assert.ok(events[0]?.type === "start" && last?.type === "done");
assert.equal(events.map((event) => (event.type === "delta" ? event.text : "")).join(""), last.answer);
cut = true;
sent.length = 0;
const broken: ChatEvent[] = [];
for await (const event of ann.stream({ message: "When does my train leave?", session_id: id })) broken.push(event);
const end = broken.at(-1);
assert.ok(end?.type === "done" && end.answer.includes("7:40"));
assert.deepEqual([sent.length, broken.filter((event) => event.type === "start").length], [2, 1]);
assert.deepEqual((await ann.ask(question, { idempotencyKey: "k" })).replayed, true);
await assert.rejects(async () => {
  for await (const _ of ann.stream({ message: "Hi", assistant: "none" }));
}, { code: "assistant_not_found" });

// Memories and tasks.
const memory = await ann.memories.add({ text: "I have two cats." });
assert.equal((await ann.memories.search({ query: "cats" })).hits[0]?.memory.id, memory.id);
const task = await ann.tasks.open({ type: "review", goal: "Read" });
lose = 1;
assert.deepEqual((await ann.tasks.append(task.id, "notes", { item: 1, agent: "reader" })).value, [1]);
await ann.tasks.change(task.id, { status: "completed", result: 12 });
const seen: string[] = [];
for await (const event of ann.tasks.events(task.id)) seen.push(event.type);
assert.equal(seen.at(-1), "task.finished");

// An answer that is lost after its head is asked for again; a write without a key is not sent again.
cut = true;
sent.length = 0;
assert.equal((await ann.sessions.get(id)).id, id);
cut = true;
await ann.sessions.delete(fork.id);
assert.equal(sent.length, 4);
cut = true;
await assert.rejects(ann.sessions.reset(id), { code: "unavailable" });
lose = 1;
await ann.sessions.delete(id);
await assert.rejects(ann.begin("Hi", { idempotencyKey: "a\nb" }), TypeError);

// A stream lasts as long as something comes; silence ends it.
mock.timers.enable({ apis: ["setTimeout"] });
let line: ReadableStreamDefaultController | undefined;
const slow = connect("http://slow", {
  fetch: async (_, init) => {
    const start = (controller: ReadableStreamDefaultController) => {
      line = controller;
      init?.signal?.addEventListener("abort", () => controller.error(init.signal?.reason));
    };
    return new Response(new ReadableStream({ start }));
  },
});
const slowly = slow.tasks.events("t");
for (const id of ["1", "2"]) {
  const next = slowly.next();
  await setImmediate();
  mock.timers.tick(400_000);
  line?.enqueue(new TextEncoder().encode(`data: {"id": "${id}"}\n\n`));
  assert.equal((await next).value?.id, id);
}
const silence = assert.rejects(slowly.next(), { code: "unavailable" });
await setImmediate();
mock.timers.tick(600_000);
await silence;
console.log("ok");
