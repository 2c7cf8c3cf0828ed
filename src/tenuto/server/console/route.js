/**
 * Where one is, in the address: `#/chat/<session>`, `#/chat` for a talk that has not begun, `#/memories` for what is
 * remembered, `#/tasks` for the list of tasks, `#/tasks/<task>` for one of them.
 */

export const MEMORIES = "#/memories";
export const TASKS = "#/tasks";

/** The page that the address names: `talk` is also that of an address that means nothing. */
export function pageInAddress() {
  if (location.hash === MEMORIES) return "memories";
  if (location.hash === TASKS) return "tasks";
  return taskInAddress() === null ? "talk" : "task";
}

export function sessionInAddress() {
  return idBehind("#/chat/");
}

export function taskInAddress() {
  return idBehind(`${TASKS}/`);
}

function idBehind(place) {
  if (!location.hash.startsWith(place)) return null;
  try {
    return decodeURIComponent(location.hash.slice(place.length)) || null;
  } catch {
    return null;
  }
}

export function addressOf(id) {
  return id === null ? "#/chat" : `#/chat/${encodeURIComponent(id)}`;
}

export function addressOfTask(id) {
  return `${TASKS}/${encodeURIComponent(id)}`;
}

/** Note a session that has just begun: nothing opens, and "back" does not lead to the empty page before it. */
export function noteInAddress(id) {
  history.replaceState(null, "", addressOf(id));
}

export function go(id) {
  location.hash = addressOf(id);
}
