/** What is remembered of the person here: bring, search, add, edit, forget. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";
import { personActions } from "./person.js";

export function memoryActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list

  const { guarded, leave } = guardedRequests(store, patch);
  const changes = guardedRequests(store, ({ problem }) => patch({ refused: problem }));
  const person = personActions(store, { get, patch }, refresh);

  /** Bring preferences and the first page anew; or, where something is searched for, what is found. */
  async function refresh() {
    const number = (asked += 1);
    const { query, kind } = get();
    if (query) {
      await guarded(
        () => api.searchMemories(query),
        ({ hits, degraded, unread }) => patch({ hits, degraded, unread, loading: false, problem: null }),
        () => number !== asked,
      );
      return;
    }
    await guarded(
      () => Promise.all([api.preferences(), api.memories({ kind })]),
      ([preferences, { memories, cursor, unread }]) =>
        patch({ preferences, items: others(memories), cursor, unread, hits: null, loading: false, problem: null }),
      () => number !== asked,
    );
  }

  async function more() {
    const number = asked;
    const { kind, cursor } = get();
    await guarded(
      () => api.memories({ kind, cursor }),
      (next) => {
        const { items } = get();
        const known = new Set(items.map((memory) => memory.id));
        const further = others(next.memories).filter((memory) => !known.has(memory.id));
        patch({ items: [...items, ...further], cursor: next.cursor });
      },
      () => number !== asked,
    );
  }

  /** Change something on the server, and bring what is there then. What it refuses is told beside the list. */
  async function change(act, told) {
    patch({ refused: null });
    const done = await changes.guarded(act, () => store.change({ told }));
    if (done) await refresh();
    return done;
  }

  return {
    refresh,
    more,
    search(query) {
      patch({ query });
      return refresh();
    },
    show(kind) {
      patch({ kind, cursor: null });
      return refresh();
    },
    add: (text, kind, told) => change(() => api.addMemory({ text, kind }), told),
    edit: (id, text, told) => change(() => api.editMemory(id, { text }), told),
    forget: (id, told) => change(() => api.forgetMemory(id), told),
    person,
    open: () => Promise.all([refresh(), person.bring()]),
    close: person.hide,
    leave() {
      leave();
      person.leave();
      changes.leave();
    },
  };
}

/** Preferences stand in a list of their own. */
function others(memories) {
  return memories.filter((memory) => memory.kind !== "preference");
}
