/**
 * What changes elsewhere: in another tab, on another device, in another process. The server tells while the page is
 * seen; a hidden one gives its connection back, since browsers have few for one server, and catches up when it is seen.
 */

import { api } from "../api.js";
import { currentTalk } from "../state.js";

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 60_000;
const TOGETHER = 150; // a turn changes its session a few times in a row
const GONE = ["deleted", "expired", "evicted"];

export function eventActions(store, { sessions, talks, turns }) {
  let connection = null; // what ends it
  let followed = null; // the session that it names
  let listing = null;
  let missed = false; // whether something may have happened while nothing was told

  function refreshList() {
    listing ??= setTimeout(() => {
      listing = null;
      sessions.refresh();
    }, TOGETHER);
  }

  function take(name, told) {
    const talk = currentTalk(store.get());
    if (name !== "turn") refreshList();
    if (!talk?.id || (name !== "ready" && told.session_id !== talk.id)) return;
    if (GONE.includes(told.kind)) talks.load(talk.key);
    else turns.catchUp(talk.id);
  }

  async function listen({ signal }) {
    let pause = FIRST_PAUSE;
    while (!signal.aborted) {
      try {
        for await (const [name, told] of api.events(followed, signal)) {
          if (signal.aborted) return;
          pause = FIRST_PAUSE;
          // What is on screen was brought with the connection, or after it.
          if (name !== "ready" || missed) take(name, told);
          missed = true;
        }
      } catch (error) {
        if (signal.aborted) return;
        // It was deleted while nothing was told.
        if (error.status === 404 && missed) take("session", { session_id: followed, kind: "deleted" });
        if ([401, 403, 404].includes(error.status)) return; // asked again with the next session
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(2 * pause, LONGEST_PAUSE);
    }
  }

  function stop() {
    connection?.abort();
    connection = null;
  }

  /** Listen for the session on screen, where one may listen at all. */
  function follow() {
    const state = store.get();
    const id = currentTalk(state)?.id ?? null;
    if (document.hidden || !state.house || state.wanted) {
      missed ||= connection !== null;
      return stop();
    }
    if (connection && followed === id) return undefined;
    missed &&= connection === null;
    stop();
    followed = id;
    connection = new AbortController();
    return listen(connection);
  }

  document.addEventListener("visibilitychange", follow);
  store.subscribe(follow);
  return { stop };
}
