/** The list of tasks: bring the newest, those that run with their steps, and look again while one of them runs. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

const LOOK_EVERY = 5000;
const MORE = 50;
const MOST = 1000; // of one answer

export function taskListActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list
  let later = null;

  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    const number = (asked += 1);
    clearTimeout(later);
    const brought = await guarded(
      () => bring(Math.min(get().shown, MOST)),
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
    more() {
      patch({ shown: get().shown + MORE });
      return refresh();
    },
    leave() {
      clearTimeout(later);
      leave();
    },
  };
}

async function bring(limit) {
  const { tasks, cursor } = await api.tasks({ limit });
  return { items: await Promise.all(tasks.map(withSteps)), more: cursor !== null };
}

/** A listing has no steps, and only they tell whether a running task waits for a person. */
function withSteps(task) {
  return task.status === "running" && task.runs > 0 ? api.task(task.id).catch(() => task) : task;
}
