/** The list of sessions: bring, search, rename, delete. */

import { api } from "../api.js";
import { Problem } from "../problem.js";
import { refused } from "./house.js";

export function sessionActions(store) {
  let asked = 0;

  function patch(change) {
    store.change((state) => ({ sessions: { ...state.sessions, ...change } }));
  }

  /** Bring the first page anew; an answer that a later question overtook is not shown. */
  async function refresh() {
    const number = (asked += 1);
    await guarded(async () => {
      const { sessions, cursor } = await api.sessions({ query: store.get().sessions.query });
      if (number === asked) patch({ items: sessions, cursor, loading: false, problem: null });
    });
  }

  async function more() {
    const { query, cursor, items } = store.get().sessions;
    await guarded(async () => {
      const next = await api.sessions({ query, cursor });
      const known = new Set(items.map((session) => session.id));
      patch({ items: [...items, ...next.sessions.filter((each) => !known.has(each.id))], cursor: next.cursor });
    });
  }

  async function rename(id, title) {
    await guarded(async () => {
      const renamed = await api.rename(id, title);
      asked += 1; // a list that is still on its way has the old title
      noted(renamed);
    });
  }

  /** Show a session as it is now: in the list, and above its talk. */
  function noted(session) {
    store.change((state) => ({
      sessions: {
        ...state.sessions,
        items: state.sessions.items.map((each) => (each.id === session.id ? session : each)),
      },
      talks: Object.fromEntries(
        Object.entries(state.talks).map(([key, talk]) => [
          key,
          talk.id === session.id ? { ...talk, title: session.title } : talk,
        ]),
      ),
    }));
  }

  async function remove(id) {
    return guarded(async () => {
      await api.remove(id);
      asked += 1;
      patch({ items: store.get().sessions.items.filter((session) => session.id !== id) });
    });
  }

  async function guarded(work) {
    try {
      await work();
      return true;
    } catch (error) {
      const problem = Problem.from(error);
      refused(store, problem);
      patch({ problem, loading: false });
      return false;
    }
  }

  return {
    refresh,
    more,
    rename,
    remove,
    search(query) {
      patch({ query });
      return refresh();
    },
  };
}
