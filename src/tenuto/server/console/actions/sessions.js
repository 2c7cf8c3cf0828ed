/** The list of sessions: bring, search, rename, fork. What is deleted is in `deletion.js`. */

import { api } from "../api.js";
import { titlesAlone } from "../state.js";
import { guardedRequests } from "./guarded.js";

const FURTHER = 100;

export function sessionActions(store) {
  let asked = 0; // the number of the latest question about the list
  let further = null; // the query and the cursor that the next page is being brought for

  function patch(change) {
    store.change((state) => ({ sessions: { ...state.sessions, ...change } }));
  }

  const { guarded, leave } = guardedRequests(store, patch);

  /** Bring the first page anew; what was brought behind it stays. */
  async function refresh() {
    const number = (asked += 1);
    const { query } = store.get().sessions;
    await guarded(
      () => api.sessions({ query, titles: titlesAlone(store.get()) }),
      (first) => {
        patch({ ...joined(store.get().sessions, first), of: query, loading: false, problem: null });
        entitle(first.sessions);
      },
      () => number !== asked,
    );
  }

  /**
   * What the list holds with a new first page. Only a change moves a session, and then to the front: what is behind one
   * that stands as it did stays. Without such a one others may have come in between.
   */
  function joined({ items, cursor, of, query }, first) {
    const held = new Map(items.map((session) => [session.id, session.updated_at]));
    const meets = first.sessions.some((session) => held.get(session.id) === session.updated_at);
    if (of !== query || first.cursor === null || !meets) return { items: first.sessions, cursor: first.cursor };
    const known = new Set(first.sessions.map((session) => session.id));
    const last = new Date(first.sessions.at(-1).updated_at);
    const older = items.filter((each) => !known.has(each.id) && new Date(each.updated_at) <= last);
    return { items: [...first.sessions, ...older], cursor: older.length ? cursor : first.cursor };
  }

  /** Bring the next page, once for the end of the list that it was asked for. */
  async function more() {
    const { query, cursor } = store.get().sessions;
    const there = (place) => place?.query === query && place.cursor === cursor;
    if (cursor === null || there(further)) return;
    const mine = (further = { query, cursor });
    await guarded(
      () => api.sessions({ query, cursor, limit: FURTHER, titles: titlesAlone(store.get()) }),
      (next) => {
        const { items } = store.get().sessions;
        const known = new Set(items.map((session) => session.id));
        const added = next.sessions.filter((each) => !known.has(each.id));
        patch({ items: [...items, ...added], cursor: next.cursor, problem: null });
      },
      () => !there(store.get().sessions),
    );
    if (further === mine) further = null;
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
    patch({ items: store.get().sessions.items.map((each) => (each.id === session.id ? { ...session, match: each.match } : each)) });
    entitle([session]);
  }

  /** The title that these sessions have now, and when they expire, stand above their talks as well. */
  function entitle(sessions) {
    const known = new Map(sessions.map((session) => [session.id, session]));
    store.change((state) => ({
      talks: Object.fromEntries(
        Object.entries(state.talks).map(([key, talk]) => {
          const { title, expires_at: expires = talk.expires } = known.get(talk.id) ?? {};
          const same = expires === talk.expires && (title || talk.title) === talk.title;
          return [key, same ? talk : { ...talk, title: title || talk.title, expires }];
        }),
      ),
    }));
  }

  return {
    refresh,
    more,
    rename,
    patch,
    /** These sessions are gone; a list that is still on its way may have them. */
    drop(ids) {
      patch({ items: store.get().sessions.items.filter((session) => !ids.includes(session.id)) });
      return refresh();
    },
    search(query) {
      patch({ query, cursor: null }); // what the list ends with says nothing about the next one
      return refresh();
    },
    leave,
  };
}
