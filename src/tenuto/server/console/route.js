/**
 * Where one is, in the address: `#/chat/<session>`, `#/chat` for a talk that has not begun, `#/memories` for what is
 * remembered.
 */

export const MEMORIES = "#/memories";

export function memoriesInAddress() {
  return location.hash === MEMORIES;
}

export function sessionInAddress() {
  const found = /^#\/chat\/(.+)$/.exec(location.hash);
  if (!found) return null;
  try {
    return decodeURIComponent(found[1]);
  } catch {
    return null;
  }
}

export function addressOf(id) {
  return id === null ? "#/chat" : `#/chat/${encodeURIComponent(id)}`;
}

/** Note a session that has just begun: nothing opens, and "back" does not lead to the empty page before it. */
export function noteInAddress(id) {
  history.replaceState(null, "", addressOf(id));
}

export function go(id) {
  location.hash = addressOf(id);
}
