/** The list of turns, all or those of a session (`#/traces/session%2F<id>`), and one of them where the address names it. */

import { NO_TRACE, NO_TRACES, traceActions, traceListActions } from "../actions/traces.js";
import { fill, h } from "../dom.js";
import { partOf } from "../state.js";
import { traceView } from "../views/trace.js";
import { tracesView } from "../views/traces.js";
import { en, zh } from "../words/traces.js";

const OF_SESSION = "session/";

export const words = { en, zh };
export const initial = { list: NO_TRACES, trace: NO_TRACE };

export function makeActions(store, own) {
  const list = traceListActions(store, partOf(own, "list"));
  const trace = traceActions(store, partOf(own, "trace"));
  return {
    list,
    trace,
    open: (id) => (isTrace(id) ? trace.open(id) : list.open(id?.slice(OF_SESSION.length) ?? null)),
    leave() {
      list.leave();
      trace.leave();
    },
  };
}

export function view(actions) {
  const list = tracesView(actions);
  const trace = traceView(actions);
  const node = h("div", { class: "page" });
  let shown = list;

  function draw(state, now) {
    shown = isTrace(state.id) ? trace : list;
    list.draw(state, now.list);
    trace.draw(state, now.trace);
    if (node.firstChild !== shown.node) fill(node, shown.node);
  }

  return { node, draw, title: (state, now) => shown.title(now), focus: () => shown.focus() };
}

/** Ids of traces have no slash. */
function isTrace(id) {
  return id !== null && !id.startsWith(OF_SESSION);
}
