/** Requests of a list whose answer may come too late: after a newer question, or for the user before. */

import { Problem } from "../problem.js";
import { refused } from "./house.js";

/** `patch` takes the problem of a request that failed. `leave` has answers to all requests so far dropped. */
export function guardedRequests(store, patch) {
  let user = 0; // the number of those who have sat here

  /** Ask, and take the answer or say what went wrong: neither where it is overtaken, or was another user's. */
  async function guarded(ask, take, overtaken = () => false) {
    const asking = user;
    const late = () => asking !== user || overtaken();
    try {
      const answer = await ask();
      if (late()) return false;
      take(answer);
      return true;
    } catch (error) {
      if (late()) return false;
      const problem = Problem.from(error);
      refused(store, problem);
      patch({ problem, loading: false });
      return false;
    }
  }

  return { guarded, leave: () => (user += 1) };
}
