/** The steps of a task over time: pure arithmetic over what the server tells. */

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5];
const LONG = [72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6];
const TICKS = 5;

/**
 * `{ rows, total, open }`: rows from top to bottom, each below all it comes after, with the step, its `start` and `end` in
 * milliseconds since the first one began (`null` for one that has not begun), and its `depth` among those. A step that
 * runs ends `now`; `open` says that there is more to come.
 */
export function stepChart(steps, now) {
  const times = steps.flatMap(({ started_at: from, ended_at: to }) => [from, to].filter(Boolean).map((at) => +new Date(at)));
  const first = Math.min(...times, ...(times.length ? [] : [now]));
  const runs = steps.some(({ status }) => status === "running" || status === "waiting");
  const last = Math.max(...times, ...(runs || !times.length ? [now] : []));
  const since = (at) => at && new Date(at) - first;
  const rows = steps.map((step, place) => {
    const start = since(step.started_at);
    return { step, place, start, end: start === null ? null : since(step.ended_at) ?? last - first };
  });
  const depths = depthsOf(steps.filter((step) => !step.started_at));
  for (const row of rows) row.depth = depths.get(row.step.id) ?? 0;
  const order = (one, other) =>
    (one.start ?? Infinity) - (other.start ?? Infinity) || one.depth - other.depth || one.place - other.place;
  // Infinity less itself is no number.
  rows.sort((one, other) => (one.start === other.start ? one.depth - other.depth || one.place - other.place : order(one, other)));
  return { rows, total: last - first, open: rows.some(({ start }) => start === null) };
}

/** How many of these steps stand one behind the other before each of them. */
function depthsOf(steps) {
  const byId = new Map(steps.map((step) => [step.id, step]));
  const depths = new Map();
  const depth = (step) => {
    if (!depths.has(step.id)) {
      depths.set(step.id, 0);
      depths.set(step.id, Math.max(0, ...step.after.filter((id) => byId.has(id)).map((id) => depth(byId.get(id)) + 1)));
    }
    return depths.get(step.id);
  };
  for (const step of steps) depth(step);
  return depths;
}

/** Round times to mark on an axis of that length. */
export function ticks(total) {
  const step = [...ROUND, ...LONG].find((each) => total / each <= TICKS) ?? total;
  return total > 0 ? Array.from({ length: Math.floor(total / step) + 1 }, (_, number) => number * step) : [0];
}
