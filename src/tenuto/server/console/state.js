/**
 * The state of the page, and the one way it changes.
 *
 * Data flows in a circle: people do something, an action calls the server and changes the state, every view draws what
 * concerns it. Values are replaced, never changed in place, so that `===` tells a view whether there is news.
 */

export const BEGINNING = {
  house: null, // what runs here: version, store, auth
  assistants: [],
  privacy: null, // what becomes of private data here, where the server tells
  choice: { assistant: null, persona: null }, // for the next talk, or the next message
  sessions: { items: [], cursor: null, query: "", loading: true, problem: null },
  page: "talk", // or "memories", "tasks", "task"
  memories: {
    preferences: [],
    items: [],
    cursor: null,
    kind: null,
    query: "",
    hits: null, // what a search found; nothing where none was made
    degraded: false,
    loading: true,
    problem: null,
  },
  tasks: { items: [], shown: 50, more: false, loading: true, problem: null },
  task: {
    id: null, // of the task on screen
    detail: null, // it and its steps
    board: { entries: [], locks: [] },
    events: [],
    live: false, // whether the server tells what happens to it, or the page has to ask
    busy: false, // whether something is done about it
    refused: null, // why that did not work
    problem: null, // why it could not be brought
  },
  talks: {}, // by key: the one on screen, and those that are still being answered
  current: null,
  away: false, // whether the server does without its store at the moment
  wanted: false, // whether the server asked for a credential
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

/** The talk on screen. */
export function currentTalk(state) {
  return state.talks[state.current] ?? null;
}

/** The assistant of a talk: its own, or the chosen one. */
export function assistantOf(state, talk) {
  const named = talk?.assistant ?? state.choice.assistant;
  return state.assistants.find((each) => each.name === named) ?? state.assistants.find((each) => each.default) ?? null;
}
