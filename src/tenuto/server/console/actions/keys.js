/** API keys: list, create, revoke. A secret is in the state only while it is shown. */

import { json } from "../api.js";
import { Problem } from "../problem.js";
import { guardedRequests } from "./guarded.js";
import { refused } from "./house.js";

const KEYS = "v1/keys";

export function keyActions(store, { get, patch }) {
  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    // Without the key that has just been created, the server would refuse, and the page ask for a key it is showing.
    if (get().first) return;
    await guarded(
      () => json("GET", KEYS),
      ({ keys, cursor }) => patch({ items: keys, cursor, loading: false, problem: null }),
    );
  }

  async function more() {
    const { cursor, items } = get();
    await guarded(
      () => json("GET", `${KEYS}?${new URLSearchParams({ cursor })}`),
      (next) => patch({ items: [...items, ...next.keys], cursor: next.cursor }),
    );
  }

  /** Change something on the server; what it refuses is told beside the form. */
  async function change(act, take) {
    patch({ busy: true, refused: null });
    try {
      take(await act());
      return true;
    } catch (error) {
      const problem = Problem.from(error);
      refused(store, problem);
      patch({ refused: problem });
      return false;
    } finally {
      patch({ busy: false });
    }
  }

  async function create(body) {
    const first = store.get().house?.auth.startsWith("open") ?? false;
    const done = await change(
      () => json("POST", KEYS, body),
      (created) => patch({ created, first }),
    );
    if (done) await refresh();
    return done;
  }

  async function revoke(id, told) {
    const done = await change(
      () => json("DELETE", `${KEYS}/${encodeURIComponent(id)}`),
      () => store.change({ told }),
    );
    if (done) await refresh();
  }

  return {
    open: refresh,
    refresh,
    more,
    create,
    revoke,
    /** Show the secret no longer. */
    putAway: () => patch({ created: null }),
    close: () => !get().first && patch({ created: null }),
    leave,
  };
}
