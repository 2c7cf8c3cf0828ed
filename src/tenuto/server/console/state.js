/**
 * The state of the page, and the one way it changes.
 *
 * Data flows in a circle: people do something, an action calls the server and changes the state, every view draws what
 * concerns it. Values are replaced, never changed in place, so that `===` tells a view whether there is news.
 */

import { CHAT } from "./pages.js";

export const BEGINNING = {
  house: null, // what runs here: version, store, auth
  assistants: [],
  models: [], // names of models that may answer in place of an assistant's own
  scope: null, // for whom the caller acts, once a page has asked
  privacy: null, // what becomes of private data here, where the server tells
  choice: { assistant: null, persona: null, model: null }, // for the next talk, or the next message
  sessions: { items: [], cursor: null, query: "", of: "", loading: true, problem: null }, // `of`: the query they answer
  deleted: { last: [], hidden: [] }, // the sessions that can be brought back; the ids that no list shows
  page: CHAT, // the name of the page on screen
  id: null, // what the address names on it, such as a session or a task
  pages: {}, // by name: the state of each page that was visited
  unloaded: null, // the name of a page that could not be fetched
  talks: {}, // by key: the one on screen, and those that are still being answered
  current: null,
  away: false, // whether the server does without its store at the moment
  wanted: false, // why credentials are asked for: asked by the user, missing or refused
  drawer: false, // whether the list of sessions lies over the page, where it is narrow
  told: "", // what a screen reader shall say
  problem: null, // why the page itself could not begin
};

export function makeStore(state = BEGINNING) {
  const listeners = new Set();
  let drawing = false;

  function draw() {
    drawing = false;
    for (const listener of listeners) listener(state);
  }

  return {
    get: () => state,
    change(patch) {
      state = { ...state, ...(typeof patch === "function" ? patch(state) : patch) };
      if (drawing) return;
      drawing = true;
      // A hidden page has no frames; its words still have to arrive.
      if (document.hidden) setTimeout(draw);
      else requestAnimationFrame(draw);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Whether sessions are found by their titles alone, since the server does not search what was said in them. */
export function titlesAlone({ house }) {
  return house?.session_search === false;
}

/** A part of the state, as `{ get, patch }`, like the whole it is a part of. */
export function partOf(whole, name) {
  return {
    get: () => whole.get()[name],
    patch: (change) => whole.patch({ [name]: { ...whole.get()[name], ...change } }),
  };
}

/** The talk on screen. */
export function currentTalk(state) {
  return state.talks[state.current] ?? null;
}

/** The assistant of a talk: its own, or the chosen one. */
export function assistantOf(state, talk) {
  const named = talk?.assistant ?? state.choice.assistant;
  return state.assistants.find((each) => each.name === named) ?? state.assistants.find((each) => each.default) ?? null;
}
