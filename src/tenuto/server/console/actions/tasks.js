/** The list of tasks: bring the newest, those that run with their steps, and look again while one of them runs. */

import { api } from "../api.js";
import { fresh } from "../items.js";
import { guardedRequests } from "./guarded.js";

/** A plan that is being written. */
const NO_DRAFT = { type: "task", goal: "", text: "" };

const LOOK_EVERY = 5000;
const MORE = 50;
const MOST = 1000; // of one answer

export function taskListActions(store, { get, patch }) {
  let asked = 0; // the number of the latest question about the list
  let later = null;
  let key = fresh(); // of the next plan: asked again after a lost answer, the same task is answered
  const draft = { ...NO_DRAFT };

  const { guarded, leave } = guardedRequests(store, patch);
  let refusal = null; // why a plan was not run
  const running = guardedRequests(store, ({ problem }) => (refusal = problem));

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

  /** Run a plan: `{ task }`, or the `{ problem }`; neither where another user sits here by now. */
  async function run(request) {
    let task = null;
    refusal = null;
    await running.guarded(
      () => api.runPlan(request, key),
      (opened) => (task = opened),
    );
    // What was refused is another plan the next time.
    if (task || refusal?.status) key = fresh();
    if (!task) return { problem: refusal };
    Object.assign(draft, NO_DRAFT);
    patch({ writing: false });
    return { task };
  }

  return {
    refresh,
    run,
    draft,
    write: () => patch({ writing: true }),
    fold: () => patch({ writing: false }),
    more() {
      patch({ shown: get().shown + MORE });
      return refresh();
    },
    leave() {
      clearTimeout(later);
      Object.assign(draft, NO_DRAFT);
      leave();
      running.leave();
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
