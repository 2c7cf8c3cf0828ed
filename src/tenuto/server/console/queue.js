/** What is written during an answer and waits for its end. It is kept in the tab: a reload loses none of it. */

const KEPT = "tenuto.queue";

function all() {
  return JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
}

/** What waits in a session. */
export function keptQueue(id) {
  return all()[id] ?? [];
}

export function keepQueue(id, queue) {
  if (id === null) return;
  const { [id]: _, ...others } = all();
  sessionStorage.setItem(KEPT, JSON.stringify(queue.length ? { ...others, [id]: queue } : others));
}

/** Forget all of it, as for another user. */
export function dropQueues() {
  sessionStorage.removeItem(KEPT);
}
