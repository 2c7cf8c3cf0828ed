/** Bring usage and topics of a period. */

import { api } from "../api.js";
import { guardedRequests } from "./guarded.js";

const TOPICS = 10;

export function usageActions(store, { get, patch }) {
  const { guarded, leave } = guardedRequests(store, patch);

  function refresh() {
    const { days } = get();
    return guarded(
      () => Promise.all([api.usage(days), api.topics(days, TOPICS)]),
      ([usage, topics]) => patch({ usage, topics, loading: false, problem: null }),
      () => days !== get().days,
    );
  }

  return {
    open: refresh,
    leave,
    show(days) {
      patch({ days });
      return refresh();
    },
    measure: (measure) => patch({ measure }),
  };
}
