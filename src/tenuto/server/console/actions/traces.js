/** Traces: bring the newest, by session, assistant or outcome; bring one. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

export const NO_TRACES = {
  items: [],
  session: null, // the id of the session whose turns are listed; nothing for all sessions
  assistant: "",
  errors: false,
  truncated: false, // whether there may be older ones
  loading: true,
  problem: null,
};
export const NO_TRACE = { id: null, detail: null, problem: null };

export function traceListActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list

  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    const number = (asked += 1);
    const { session, assistant, errors } = get();
    await guarded(
      () => api.traces({ session_id: session, assistant, errors: errors || null }),
      ({ traces, truncated }) => patch({ items: traces, truncated, loading: false, problem: null }),
      () => number !== asked,
    );
  }

  /** Bring the turns before the last one of the list, of its session. */
  async function older() {
    const number = asked;
    const { session, assistant, errors, items } = get();
    await guarded(
      () => api.traces({ session_id: session, assistant, errors: errors || null, before: items.at(-1).turn }),
      ({ traces, truncated }) => patch({ items: [...get().items, ...traces], truncated }),
      () => number !== asked,
    );
  }

  function filter(change) {
    patch({ ...change, items: [], truncated: false, loading: true, problem: null });
    return refresh();
  }

  return {
    refresh,
    older,
    filter,
    open: (session) => (session === get().session ? refresh() : filter({ session })),
    leave,
  };
}

export function traceActions(store, { get, patch }) {
  const { guarded, leave } = guardedRequests(store, ({ problem }) => patch({ problem }));

  /** A trace does not change once it is written. */
  async function open(id) {
    if (get().id === id && get().detail !== null) return;
    patch({ ...NO_TRACE, id });
    await guarded(
      () => api.trace(id),
      (detail) => patch({ detail, problem: null }),
      () => id !== get().id,
    );
  }

  return { open, again: () => open(get().id), leave };
}
