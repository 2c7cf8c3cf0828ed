/** The list of sessions: bring, search, rename, delete. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

export function sessionActions(store) {
  let asked = 0; // the number of the latest question about the list

  function patch(change) {
    store.change((state) => ({ sessions: { ...state.sessions, ...change } }));
  }

  const { guarded, leave } = guardedRequests(store, patch);

  /** Bring the first page anew. */
  async function refresh() {
    const number = (asked += 1);
    await guarded(
      () => api.sessions({ query: store.get().sessions.query }),
      ({ sessions, cursor }) => {
        patch({ items: sessions, cursor, loading: false, problem: null });
        entitle(sessions);
      },
      () => number !== asked,
    );
  }

  /** Bring the next page, for the end of the list that it was asked for. */
  async function more() {
    const number = asked;
    const { query, cursor } = store.get().sessions;
    await guarded(
      () => api.sessions({ query, cursor }),
      (next) => {
        const { items } = store.get().sessions;
        const known = new Set(items.map((session) => session.id));
        patch({ items: [...items, ...next.sessions.filter((each) => !known.has(each.id))], cursor: next.cursor });
      },
      () => number !== asked || cursor !== store.get().sessions.cursor,
    );
  }

  async function rename(id, title) {
    await guarded(
      () => api.rename(id, title),
      (renamed) => {
        asked += 1; // a list that is still on its way has the old title
        noted(renamed);
      },
    );
  }

  /** Show a session as it is now: in the list, and above its talk. */
  function noted(session) {
    store.change((state) => ({
      sessions: {
        ...state.sessions,
        items: state.sessions.items.map((each) => (each.id === session.id ? session : each)),
      },
    }));
    entitle([session]);
  }

  /** The title that these sessions have now stands above their talks as well. */
  function entitle(sessions) {
    const titles = new Map(sessions.map(({ id, title }) => [id, title]));
    store.change((state) => ({
      talks: Object.fromEntries(
        Object.entries(state.talks).map(([key, talk]) => {
          const title = titles.get(talk.id) || talk.title;
          return [key, title === talk.title ? talk : { ...talk, title }];
        }),
      ),
    }));
  }

  async function remove(id) {
    return guarded(
      () => api.remove(id),
      () => {
        asked += 1;
        patch({ items: store.get().sessions.items.filter((session) => session.id !== id) });
      },
    );
  }

  return {
    refresh,
    more,
    rename,
    remove,
    search(query) {
      patch({ query, cursor: null }); // what the list ends with says nothing about the next one
      return refresh();
    },
    leave,
  };
}
