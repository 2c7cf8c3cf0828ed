/** The list of tasks: bring all of them, those that run with their steps, and look again while one of them runs. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

const LOOK_EVERY = 5000;
const MOST_PAGES = 5;
const MORE = 50;

export function taskListActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list
  let later = null;

  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    const number = (asked += 1);
    clearTimeout(later);
    const brought = await guarded(
      () => newestFirst(get().shown),
      (found) => patch({ ...found, loading: false, problem: null }),
      () => number !== asked,
    );
    if (brought && get().items.some((task) => task.completed_at === null)) later = setTimeout(look, LOOK_EVERY);
  }

  function look() {
    // A page that comes to the front is brought anew anyway.
    if (store.get().page === "tasks" && store.get().id === null && !document.hidden) refresh();
  }

  return {
    refresh,
    more: () => patch({ shown: get().shown + MORE }),
    leave() {
      clearTimeout(later);
      leave();
    },
  };
}

/** The server lists the oldest first, so all pages are brought; `more` says that there are too many for that. */
async function newestFirst(shown) {
  const items = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const next = await api.tasks({ cursor });
    items.push(...next.tasks);
    cursor = next.cursor;
    if (cursor === null) break;
  }
  items.reverse();
  const details = await Promise.all(items.slice(0, shown).map(withSteps));
  return { items: [...details, ...items.slice(shown)], more: cursor !== null };
}

/** A listing has no steps, and only they tell whether a running task waits for a person. */
function withSteps(task) {
  return task.status === "running" && task.runs > 0 ? api.task(task.id).catch(() => task) : task;
}
