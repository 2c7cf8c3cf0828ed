/** Where one is, in the address: `#/chat/<session>`, `#/chat` for a talk that has not begun, `#/<page>[/<id>]` for others. */

import { CHAT, isPage } from "./pages.js";

/** The page that the address names, and the id on it or nothing. An address that means nothing is that of a new talk. */
export function placeInAddress() {
  const [, page, id] = /^#\/(\w+)(?:\/(.+))?$/.exec(location.hash) ?? [];
  return page === CHAT || isPage(page) ? { page, id: decoded(id) } : { page: CHAT, id: null };
}

function decoded(id = "") {
  try {
    return decodeURIComponent(id) || null;
  } catch {
    return null;
  }
}

export function addressOfPage(page, id = null) {
  return id === null ? `#/${page}` : `#/${page}/${encodeURIComponent(id)}`;
}

export function addressOf(session) {
  return addressOfPage(CHAT, session);
}

export function addressOfTask(id) {
  return addressOfPage("tasks", id);
}

/** Note a session that has just begun: nothing opens, and "back" does not lead to the empty page before it. */
export function noteInAddress(id) {
  history.replaceState(null, "", addressOf(id));
}

export function go(id) {
  location.hash = addressOf(id);
}
