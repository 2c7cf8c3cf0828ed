/**
 * Deletes sessions after a time in which that can be undone.
 *
 * Until then the sessions are only hidden, so an undo loses nothing. They are deleted when the time is over, when others
 * are deleted, when another user takes over, and when the page is left, with requests that outlive it. What is to be
 * deleted is noted in the tab until the server has answered: where the page ended before, its next start deletes it.
 */

import { api } from "../api.js";
import { Problem } from "../problem.js";

const UNDO = 10_000;
const NOTED = "tenuto.deleting";

/** `erased` is called when sessions are gone from the server: what the page counts has changed. */
export function deletionActions(store, sessions, erased) {
  let timer = null;
  let user = 0; // the number of those who have sat here

  function patch(change) {
    store.change((state) => ({ deleted: { ...state.deleted, ...change } }));
  }

  function wait() {
    clearTimeout(timer);
    if (store.get().deleted.last.length) timer = setTimeout(commit, UNDO);
  }

  function remove(gone) {
    commit();
    const ids = gone.map((session) => session.id);
    note([...noted(), ...ids]);
    patch({ last: gone, hidden: [...store.get().deleted.hidden, ...ids] });
    wait();
  }

  /** Bring back what was deleted last; returns it. */
  function undo() {
    clearTimeout(timer);
    const { last } = store.get().deleted;
    const ids = last.map((session) => session.id);
    note(noted().filter((id) => !ids.includes(id)));
    patch({ last: [], hidden: without(ids) });
    return last;
  }

  /** Delete on the server what can still be undone. */
  function commit() {
    clearTimeout(timer);
    const ids = store.get().deleted.last.map((session) => session.id);
    if (ids.length === 0) return null;
    patch({ last: [] });
    return erase(ids);
  }

  async function erase(ids) {
    const asking = user;
    const results = await Promise.allSettled(ids.map((id) => api.remove(id)));
    if (asking !== user) return;
    const problems = results.map((each) => (each.status === "fulfilled" ? null : Problem.from(each.reason)));
    const gone = ids.filter((_, place) => problems[place] === null || problems[place].status === 404);
    note(noted().filter((id) => !ids.includes(id)));
    patch({ hidden: without(ids) });
    await Promise.all([sessions.drop(gone), erased()]);
    const problem = problems.find((each) => each !== null && each.status !== 404);
    if (problem && asking === user) sessions.patch({ problem });
  }

  function without(ids) {
    return store.get().deleted.hidden.filter((id) => !ids.includes(id));
  }

  /** The page is left: what is noted is deleted by requests that outlive it. */
  function leavePage() {
    clearTimeout(timer);
    for (const id of noted()) api.remove(id, { keepalive: true }).catch(() => {});
    patch({ last: [] }); // where the page comes back out of the browser's cache, nothing is left to undo
  }

  return {
    remove,
    undo,
    commit,
    leavePage,
    /** While the pointer is at the offer to undo, the time stands still. */
    hold: () => clearTimeout(timer),
    wait,
    holds: (id) => store.get().deleted.hidden.includes(id),
    /** Delete what an earlier start of the page could not. */
    resume() {
      const ids = noted();
      if (ids.length === 0) return null;
      patch({ hidden: ids });
      return erase(ids);
    },
    /** Another user takes over. */
    leave() {
      commit();
      user += 1;
      note([]);
    },
  };
}

function noted() {
  return JSON.parse(sessionStorage.getItem(NOTED) ?? "[]");
}

function note(ids) {
  if (ids.length) sessionStorage.setItem(NOTED, JSON.stringify(ids));
  else sessionStorage.removeItem(NOTED);
}

/** The sessions of the list that were not deleted. */
export function present({ sessions, deleted }) {
  if (deleted.hidden.length === 0) return sessions.items;
  return sessions.items.filter((session) => !deleted.hidden.includes(session.id));
}
