/** The steps of a task over time: pure arithmetic over what the server tells. */

const ROUND = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5];
const LONG = [72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5, 2592e6];
const TICKS = 5;

/**
 * `{ rows, total, open }`: rows from top to bottom, each below all it comes after, with the step, its `start` and `end` in
 * milliseconds since the first one began (`null` for one that has not begun), and its `depth` among those. A step that
 * runs ends `now`, and one that was skipped stands where it would have begun; `open` says that there is more to come.
 */
export function stepChart(steps, now) {
  const times = steps.flatMap(({ started_at: from, ended_at: to }) =>
    [from, to].filter(Boolean).map((at) => +new Date(at)),
  );
  const runs = steps.some(({ status }) => status === "running" || status === "waiting");
  if (runs || times.length === 0) times.push(now);
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const since = (at) => at && new Date(at) - first;
  const byId = new Map(steps.map((step) => [step.id, step]));
  const ends = new Map();
  const endOf = (step) => {
    if (!ends.has(step.id))
      ends.set(step.id, step.status === "skipped" ? afterOf(step) : (since(step.ended_at) ?? last - first));
    return ends.get(step.id);
  };
  const afterOf = ({ after }) => Math.max(0, ...after.map((id) => endOf(byId.get(id))));
  const rows = steps.map((step, place) => {
    const start = step.status === "skipped" ? endOf(step) : since(step.started_at);
    return { step, place, start, end: start === null ? null : endOf(step) };
  });
  const depths = depthsOf(rows.filter(({ start }) => start === null).map(({ step }) => step));
  for (const row of rows) row.depth = depths.get(row.step.id) ?? 0;
  const latest = (row) => row.start ?? Number.MAX_VALUE;
  // What was skipped stands after what ended at that moment, and before what began then.
  const skipped = ({ step }) => (step.status === "skipped" ? 0 : 1);
  rows.sort(
    (one, other) =>
      latest(one) - latest(other) ||
      one.depth - other.depth ||
      skipped(one) - skipped(other) ||
      one.place - other.place,
  );
  return { rows, total: last - first, open: depths.size > 0 };
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
