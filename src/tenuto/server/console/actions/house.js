/** What the page does first: learn what runs here and who can be talked to. */

import { api } from "../api.js";
import { learn } from "../marks.js";
import { becomeMe, me } from "../me.js";
import { Problem } from "../problem.js";

// While the store is away and the user does nothing, the page asks this often whether it is back.
const LOOK_AFTER = 5000;

export function houseActions(store) {
  let begun = 0;
  let looking = null;

  /** Whether the page can begin; a beginning that a later one overtook leaves the page to it. */
  async function begin() {
    const number = (begun += 1);
    try {
      const [house, { assistants, models }, privacy] = await Promise.all([api.health(), api.assistants(), policy()]);
      if (number !== begun) return false;
      learn(privacy);
      const known = store.get().choice.assistant;
      const first = assistants.find((each) => each.name === known) ?? assistants.find((each) => each.default);
      store.change((state) => ({
        house,
        assistants,
        models,
        privacy,
        problem: null,
        choice: { ...state.choice, assistant: (first ?? assistants[0]).name },
      }));
      return true;
    } catch (error) {
      if (number !== begun) return false;
      refused(store, Problem.from(error));
      store.change({ problem: Problem.from(error) });
      return false;
    }
  }

  /** Ask again what becomes of private data: whether a detector answers changes from one moment to the next. */
  async function review() {
    const number = begun;
    const privacy = await policy();
    if (!privacy || number !== begun) return;
    learn(privacy);
    store.change({ privacy });
  }

  /** Learn for whom the caller acts: a key may be bound to a user that was not typed here. */
  async function place() {
    if (store.get().scope !== null) return;
    const number = begun;
    const scope = await api.scope().catch(() => null);
    if (number === begun) store.change({ scope });
  }

  /** What every answer tells; returns whether the store has come back. */
  function noteStore(away) {
    const back = store.get().away && !away;
    if (store.get().away !== away) store.change({ away });
    if (away && looking === null) looking = setTimeout(look, LOOK_AFTER);
    return back;
  }

  function look() {
    looking = null;
    if (store.get().away) api.ready().catch(() => noteStore(true));
  }

  return {
    begin,
    review,
    place,
    noteStore,
    /** Choose whom the next talk is with. */
    choose: (assistant) => store.change((state) => ({ choice: { ...state.choice, assistant, persona: null } })),
    /** Choose the character that the next message is for. */
    address: (persona) => store.change((state) => ({ choice: { ...state.choice, persona } })),
    /** Choose the model that answers the next messages in place of the assistant's own. */
    answerWith: (model) => store.change((state) => ({ choice: { ...state.choice, model } })),
    identify: (who) => {
      becomeMe(who);
      store.change({ wanted: false });
    },
    want: (wanted) => store.change({ wanted: wanted && "asked" }),
    drawer: (drawer) => store.change({ drawer }),
  };
}

/** What becomes of private data, or nothing: a server that does not tell can be talked to all the same. */
async function policy() {
  const told = await api.privacy().catch(() => null);
  return told?.modes ? told : null;
}

/** Where the server needs a credential, ask for one. Its first key may have been created after the page was loaded. */
export function refused(store, problem) {
  if (problem.status !== 401) return;
  // The page of keys shows the first one, never to be shown again, and asks for it there.
  const { page, pages } = store.get();
  if (page === "keys" && pages.keys?.first) return;
  store.change(({ house }) => ({ wanted: me().key ? "refused" : "missing", house: house && { ...house, auth: "closed" } }));
}
