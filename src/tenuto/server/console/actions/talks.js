/** Talks: open one, begin one, read further back. A talk that is being answered goes on when another one is opened. */

import { api } from "../api.js";
import { fresh, isUpToDate, itemsOf, lastSeq, mergedItems, numbered } from "../items.js";
import { Problem } from "../problem.js";
import { keepQueue, keptQueue } from "../queue.js";
import { currentTalk } from "../state.js";
import { refused } from "./house.js";

const NEW = {
  id: null,
  title: "",
  assistant: null,
  items: [],
  more: false,
  loading: false,
  problem: null,
  unanswered: null, // why the last message has no answer, where its trace tells
  running: null,
  through: 0, // the newest message that was brought; some show nothing
  queue: [], // what waits to be said, in order: `{ key, text, persona, attachments }`, after a reload with `lost`
  expires: null, // when it goes, if nothing is said in it
  forkedFrom: null, // the session and the message it branched off from: { session_id, seq, title }
};

export function talkActions(store) {
  function change(key, patch) {
    store.change((state) => {
      const talk = state.talks[key];
      if (!talk) return {};
      return { talks: { ...state.talks, [key]: { ...talk, ...(typeof patch === "function" ? patch(talk) : patch) } } };
    });
  }

  /** Put a talk on screen, and let go of those that nothing happens in. */
  function show(talk) {
    store.change((state) => {
      const going = Object.values(state.talks).filter(stays);
      return {
        talks: Object.fromEntries([...going, talk].map((each) => [each.key, each])),
        current: talk.key,
        choice: { ...state.choice, persona: talk.items.findLast((item) => item.persona)?.persona ?? null },
        drawer: false,
      };
    });
  }

  async function open(id) {
    const going = Object.values(store.get().talks).find((talk) => talk.id === id && stays(talk));
    if (going) return show(going);
    const talk = { ...NEW, key: fresh(), id, loading: true };
    show(talk);
    return load(talk.key);
  }

  /** Bring a talk; the events of an answer that is being made in it are returned. */
  async function load(key) {
    const { id } = store.get().talks[key];
    change(key, { loading: true, problem: null });
    try {
      // Before the messages: an answer that ends in between is among them.
      let problem = null;
      const events = await api.join(id).catch((error) => {
        if (error.code !== "turn_unreachable") throw error;
        problem = Problem.from(error);
        return null;
      });
      const [session, page] = await Promise.all([api.session(id), api.messages(id)]);
      const assistant = session.metadata.assistant ?? null;
      change(key, {
        title: session.title,
        assistant,
        items: itemsOf(page.messages),
        more: page.more_before,
        through: page.messages.at(-1)?.seq ?? 0,
        loading: false,
        queue: keptQueue(id),
        expires: session.expires_at,
        problem,
      });
      if (session.forked_from) nameOrigin(key, session.forked_from);
      const talk = store.get().talks[key];
      if (talk && store.get().current === key) show(talk);
      if (events === null && talk?.items.at(-1)?.kind === "words") await explain(key, id);
      return events;
    } catch (error) {
      if (!store.get().talks[key]) return null; // the talk was left, and the refusal may be another person's
      const problem = Problem.from(error);
      refused(store, problem);
      change(key, { problem, loading: false });
      return null;
    }
  }

  /** Learn why the last message was not answered, from the trace of its turn. */
  async function explain(key, id) {
    const { traces } = await api.traces({ session_id: id, limit: 1 }).catch(() => ({ traces: [] }));
    const failed = traces.find(({ error, stopped }) => error !== null && !stopped);
    if (failed) change(key, { unanswered: Problem.ofTrace(failed) });
  }

  /** Learn what the session is called that this one was forked from; it may be gone. */
  async function nameOrigin(key, origin) {
    const listed = store.get().sessions.items.find((each) => each.id === origin.session_id);
    const { title = null } = listed ?? (await api.session(origin.session_id).catch(() => ({})));
    change(key, { forkedFrom: { ...origin, title } });
  }

  async function older() {
    const { key, id, items } = currentTalk(store.get());
    try {
      const page = await api.messages(id, { before: items[0].seq });
      change(key, (talk) => ({ items: [...itemsOf(page.messages), ...talk.items], more: page.more_before }));
    } catch (error) {
      change(key, { problem: Problem.from(error) });
    }
  }

  /** Bring what others changed in a talk that nothing is being said in; returns the events of an answer being made. */
  async function catchUp(key) {
    const { id, items: before } = store.get().talks[key];
    if (before.some(isJournaled)) return null;
    try {
      const events = await api.join(id);
      if (before.some((item) => item.seq === null)) await settle(key);
      let shown, page;
      do {
        // What was said here meanwhile may not be on the page yet, and would be lost on screen.
        shown = store.get().talks[key]?.items;
        page = await api.messages(id);
      } while (shown !== store.get().talks[key]?.items && store.get().talks[key]?.running === null);
      const { items, running, loading } = store.get().talks[key] ?? {};
      if (running !== null || loading || items.some(isJournaled)) {
        events?.next().then(() => events.return()); // ends the connection
        return null;
      }
      change(key, { through: page.messages.at(-1)?.seq ?? 0 });
      if (!isUpToDate(items, page.messages)) change(key, { items: mergedItems(items, page.messages) });
      return events;
    } catch {
      return null; // the next event, or the focus, brings it
    }
  }

  /** Learn which numbers the store gave to what was said last. */
  async function settle(key) {
    const talk = store.get().talks[key];
    // What a journal keeps gets its numbers when the store is back: others may have spoken before it.
    if (!talk?.id || talk.items.at(-1)?.degraded?.includes("journal")) return;
    try {
      const page = await api.messages(talk.id, { after: lastSeq(talk.items) });
      change(key, (now) => ({ items: numbered(now.items, page.messages) }));
    } catch {
      // Without numbers a message cannot be edited until the page is loaded again; nothing else is lost.
    }
  }

  /** Note what waits to be said in a talk. */
  function queue(key, waiting) {
    change(key, { queue: waiting });
    keepQueue(store.get().talks[key].id, waiting);
  }

  /** Delete an attachment of a session; returns what went wrong. */
  async function removeAttachment(session, id) {
    try {
      await api.removeAttachment(session, id);
    } catch (error) {
      const problem = Problem.from(error);
      refused(store, problem);
      if (problem.code !== "attachment_not_found") return problem;
    }
    const gone = (each) => (each.id === id ? { ...each, removed: true, id: null, file: null, source: null } : each);
    const { key } = Object.values(store.get().talks).find((talk) => talk.id === session) ?? {};
    if (key)
      change(key, ({ items }) => ({
        items: items.map((item) =>
          item.attachments?.some((each) => each.id === id) ? { ...item, attachments: item.attachments.map(gone) } : item,
        ),
      }));
    return null;
  }

  return { change, queue, open, load, catchUp, older, settle, attachment: api.attachment, removeAttachment, begin: () => show({ ...NEW, key: fresh() }) };
}

/** Whether a journal keeps it: it is not among the messages of the store, and would be lost on screen. */
function isJournaled({ seq, degraded }) {
  return seq === null && degraded?.includes("journal");
}

/** Whether a talk outlives its place on screen. */
function stays({ running, queue }) {
  return running !== null || queue.length > 0;
}
