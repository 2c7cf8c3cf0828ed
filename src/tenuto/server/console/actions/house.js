/** What the page does first: learn what runs here and who can be talked to. */

import { api } from "../api.js";
import { becomeMe } from "../me.js";
import { Problem } from "../problem.js";

export function houseActions(store) {
  let begun = 0;

  /** Whether the page can begin; a beginning that a later one overtook leaves the page to it. */
  async function begin() {
    const number = (begun += 1);
    try {
      const [house, assistants] = await Promise.all([api.health(), api.assistants()]);
      if (number !== begun) return false;
      const known = store.get().choice.assistant;
      const first = assistants.find((each) => each.name === known) ?? assistants.find((each) => each.default);
      store.change((state) => ({
        house,
        assistants,
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

  return {
    begin,
    /** Choose whom the next talk is with. */
    choose: (assistant) => store.change({ choice: { assistant, persona: null } }),
    /** Choose the character that the next message is for. */
    address: (persona) => store.change((state) => ({ choice: { ...state.choice, persona } })),
    identify: (who) => {
      becomeMe(who);
      store.change({ wanted: false });
    },
    want: (wanted) => store.change({ wanted }),
    drawer: (drawer) => store.change({ drawer }),
  };
}

/** Where the server needs a credential, ask for one. */
export function refused(store, problem) {
  if (problem.status === 401) store.change({ wanted: true });
}
