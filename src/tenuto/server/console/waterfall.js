/** What a turn did, and when: pure arithmetic over a trace. */

/**
 * `{ rows, total, exact }`: steps in order of their start, tools behind the step they ran in, each with `name`, `start`
 * and `milliseconds`. Older traces tell no starts: their steps stand one behind the other, and `exact` is false.
 */
export function waterfall({ spans = [], steps, tools = [] }) {
  const exact = spans.length > 0;
  const parts = exact ? spans.map((span) => ({ ...span, kind: "step" })) : inTurn(steps);
  const runs = tools.map((run, place) => ({ ...run, kind: "tool", place }));
  const timed = runs.filter((run) => run.start !== null);
  const rows = [...parts, ...timed].sort((one, other) => one.start - other.start || order(one) - order(other));
  const total = rows.reduce((most, row) => Math.max(most, row.start + row.milliseconds), 0);
  return { rows, total, exact };
}

function order({ kind }) {
  return kind === "step" ? 0 : 1;
}

function inTurn(steps) {
  let start = 0;
  return Object.entries(steps).map(([name, milliseconds]) => {
    const row = { name, kind: "step", start, milliseconds, usage: null };
    start += milliseconds;
    return row;
  });
}
