/**
 * What is written during an answer and waits for its end. Its texts are kept in the tab, so a reload loses none of them.
 * The bytes of attachments are written nowhere: after a reload `lost` has their names, until the message is taken back.
 */

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
  sessionStorage.setItem(KEPT, JSON.stringify(queue.length ? { ...others, [id]: queue.map(withoutBytes) } : others));
}

function withoutBytes({ attachments = [], ...item }) {
  return { ...item, attachments: [], lost: [...(item.lost ?? []), ...attachments.map(({ name }) => name)] };
}

/** Forget all of it, as for another user. */
export function dropQueues() {
  sessionStorage.removeItem(KEPT);
}
