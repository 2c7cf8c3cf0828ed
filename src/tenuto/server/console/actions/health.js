/** Ask the server how it is, again and again while the page is on screen. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

const EVERY = 3000;
const REFUSED = [401, 403];

export function healthActions(store, { get, patch }) {
  let timer = null;
  const { guarded, leave } = guardedRequests(store, patch);

  async function refresh() {
    const before = get().status;
    await guarded(
      () => api.status(),
      (status) => patch({ status, before, loading: false, problem: null }),
      () => timer === null,
    );
    // To ask again with the same credential would change nothing.
    if (REFUSED.includes(get().problem?.status)) close();
  }

  function open() {
    close();
    timer = setInterval(() => document.hidden || refresh(), EVERY);
    return refresh();
  }

  function close() {
    clearInterval(timer);
    timer = null;
  }

  return { open, close, leave };
}
