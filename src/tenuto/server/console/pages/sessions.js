/** All sessions as a table: search, rename, fork, export, delete, one or several at once. */

import { api } from "../api.js";
import { guardedRequests } from "../actions/guarded.js";
import { spoken } from "../marks.js";
import { save } from "../saving.js";
import { sessionsView } from "../views/sessions.js";
import { en, zh } from "../words/sessions.js";

export const words = { en, zh };
export const initial = {
  stats: null, // how much the caller has in all
  selected: [], // ids
  problem: null, // why the last thing done here did not work
};
export const view = sessionsView;

const ENDINGS = { json: "json", jsonl: "jsonl", markdown: "md" };

export function makeActions(store, { get, patch }) {
  const { guarded, leave } = guardedRequests(store, ({ problem }) => patch({ problem }));

  return {
    open: () => guarded(api.stats, (stats) => patch({ stats, problem: null })),
    leave,
    select(ids, selected) {
      const others = get().selected.filter((id) => !ids.includes(id));
      patch({ selected: selected ? [...others, ...ids] : others });
    },
    /** Branch off a copy; returns its id, or nothing where that did not work. */
    async fork(id) {
      let made = null;
      await guarded(
        () => api.fork(id),
        (session) => (made = session.id),
      );
      return made;
    },
    /** One file for each session, one after the other. */
    async export(sessions, format) {
      for (const session of sessions) {
        const done = await guarded(
          () => api.export(session.id, format),
          (blob) => save(blob, `${nameOf(session)}.${ENDINGS[format]}`),
        );
        if (!done) return;
      }
    },
  };
}

function nameOf({ title }) {
  return spoken(title).replaceAll(/[\\/:*?"<>|\p{C}]/gu, " ").trim() || "session";
}
