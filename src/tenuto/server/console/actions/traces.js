/** Traces: bring the newest, by what they are; bring one. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

/** What a listing asks for; nothing where it asks for all. */
export const NO_FILTER = {
  user: "",
  assistant: "",
  model: "",
  outcome: "",
  period: "", // hours until now; or "custom", which is from `since` to before `until`
  since: "", // as a field of date and time writes it
  until: "",
};
export const NO_TRACES = {
  items: [],
  session: null, // the id of the session whose turns are listed; nothing for all sessions
  filter: NO_FILTER,
  models: [], // those that were seen in any listing, to choose from
  users: [], // likewise
  truncated: false, // whether there may be older ones
  exhausted: false, // whether there may be, and the server looks no further
  loading: true,
  problem: null,
};
export const NO_TRACE = { id: null, detail: null, problem: null };

const HOUR = 3_600_000;

export function traceListActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list

  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    const number = (asked += 1);
    await guarded(
      () => api.traces(query(get())),
      ({ traces, truncated }) =>
        patch({ items: traces, ...seen(traces), truncated, exhausted: false, loading: false, problem: null }),
      () => number !== asked,
    );
  }

  /** Bring the turns before the last one of the list. */
  async function older() {
    const number = asked;
    const { session, items } = get();
    const last = items.at(-1);
    const before = session === null ? { until: last.began_at } : { before: last.turn };
    await guarded(
      () => api.traces({ ...query(get()), ...before }),
      ({ traces, truncated }) =>
        patch({
          items: [...get().items, ...traces],
          ...seen(traces),
          truncated: truncated && traces.length > 0,
          exhausted: truncated && traces.length === 0,
        }),
      () => number !== asked,
    );
  }

  function seen(traces) {
    const joined = (known, name) => [...new Set([...known, ...traces.map((trace) => trace[name])])].filter(Boolean);
    return { models: joined(get().models, "model").sort(), users: joined(get().users, "user").sort() };
  }

  function list(change) {
    patch({ ...change, items: [], truncated: false, exhausted: false, loading: true, problem: null });
    return refresh();
  }

  return {
    refresh,
    older,
    filter: (change) => list({ filter: { ...get().filter, ...change } }),
    open: (session) => (session === get().session ? refresh() : list({ session })),
    leave,
  };
}

function query({ session, filter: { period, since, until, ...named } }) {
  const custom = period === "custom";
  const from = custom ? instant(since) : period && new Date(Date.now() - period * HOUR).toISOString();
  return { session_id: session, ...named, since: from, until: custom ? instant(until) : "" };
}

function instant(local) {
  return local && new Date(local).toISOString();
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
