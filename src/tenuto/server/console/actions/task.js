/** One task: follow it while it runs, cancel it, run it again, answer what it asks. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

export const NO_TASK = {
  id: null, // of the task on screen
  detail: null, // it and its steps
  board: { entries: [], locks: [] },
  events: [],
  live: false, // whether the server tells what happens to it, or the page has to ask
  busy: false, // whether something is done about it
  refused: null, // why that did not work
  problem: null, // why it could not be brought
};

// This often the page asks by itself, where no event comes through.
const LOOK_EVERY = 2000;
// Asking again would not help.
const FINAL = [401, 403, 404];

export function taskActions(store, { get, patch }) {
  let looking = null; // the look that is on its way; another one in its place, and what it finds is out of date
  let stopper = null; // of the task that is followed

  const asking = guardedRequests(store, ({ problem }) => patch({ problem }));
  const acting = guardedRequests(store, ({ problem }) => patch({ refused: problem }));

  /** Bring the task as it is now. Those who ask meanwhile share the next look. */
  function look() {
    if (looking) looking.again = true;
    else {
      looking = { again: true };
      looking.done = lookOn(looking);
    }
    return looking.done;
  }

  async function lookOn(mine) {
    while (mine.again && mine === looking) {
      mine.again = false;
      await bring(get().id, () => mine !== looking);
    }
    if (mine === looking) looking = null;
  }

  async function bring(id, overtaken) {
    const brought = await asking.guarded(
      () => Promise.all([api.task(id), api.board(id), api.timeline(id)]),
      ([detail, board, events]) => {
        patch({ detail, board, events, problem: null });
        if (detail.completed_at !== null) close();
      },
      overtaken,
    );
    if (!brought && !overtaken() && FINAL.includes(get().problem?.status)) close();
  }

  function close() {
    stopper?.abort();
    stopper = null;
    if (get().live) patch({ live: false });
  }

  /** Look at the task whenever something happens to it, until it has ended or is left. */
  async function follow(id) {
    close();
    const { signal } = (stopper = new AbortController());
    const timer = setInterval(() => !get().live && look(), LOOK_EVERY);
    signal.addEventListener("abort", () => clearInterval(timer));
    await look();
    let last = null;
    while (!signal.aborted) {
      try {
        for await (const event of api.taskEvents(id, { after: last, signal })) {
          last = event.id;
          if (!get().live) patch({ live: true });
          look();
        }
      } catch {
        // The timer looks until the stream is there again.
      }
      if (signal.aborted) return;
      patch({ live: false });
      await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY));
    }
  }

  function open(id) {
    const same = id === get().id;
    if (!same) {
      looking = null;
      patch({ ...NO_TASK, id });
    }
    if (!same || stopper === null) follow(id);
    return look();
  }

  /** Do something about the task, which is answered with the task as it is then. */
  async function act(ask, told) {
    const { id } = get();
    patch({ busy: true, refused: null });
    const done = await acting.guarded(
      () => ask(id),
      (detail) => {
        looking = null;
        patch({ detail });
        store.change({ told });
      },
      () => id !== get().id,
    );
    if (id !== get().id) return false;
    patch({ busy: false });
    if (done) follow(id);
    else look();
    return done;
  }

  return {
    open,
    close,
    refresh: () => open(get().id),
    cancel: (told) => act(api.cancelTask, told),
    resume: (step, told) => act((id) => api.resumeTask(id, step), told),
    answer: (step, value, told) => act((id) => api.answerStep(id, step, value), told),
    leave() {
      looking = null;
      close();
      asking.leave();
      acting.leave();
    },
  };
}
