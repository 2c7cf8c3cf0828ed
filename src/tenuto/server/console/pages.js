/**
 * The pages of the console beside the chat, in the order of the navigation.
 *
 * A page NAME is at `#/NAME` and `#/NAME/<id>`. It is a row of this table, a phrase `page.NAME` in `words/en.js` and
 * `words/zh.js`, an icon in `views/icons.js`, and a module `pages/NAME.js` that is fetched at the first visit, together
 * with `css/NAME.css`. What the chat needs as well is imported by both and fetched once. The module exports:
 *
 * - `words`: its phrases, `{ en, zh }`, from `words/NAME.js`;
 * - `initial`: its part of the state, kept at `state.pages.NAME`;
 * - `makeActions(store, own)`: what one does on it. `own.get()` is its part of the state, `own.patch(change)` changes
 *   it. Three of the actions are called by `page_loader.js`: `open(id)` when the page comes on screen, when the id in the
 *   address changes (`null` where there is none) and when the window gets the focus again; `close()`, if there is one,
 *   when another page comes on screen; `leave()` when another user takes over, to drop requests on their way;
 * - `view(actions, ask)`: `{ node, draw(state, now), focus(), title(state, now) }`. `now` is its part of the state,
 *   `actions.page` what `makeActions` returned, beside the actions of `app.js`; `ask` opens a question, see
 *   `views/dialogs.js`. `node` is a `div.page` that begins with a `pageHeader`. `state.id` is the id in the address.
 */

export const PAGES = [
  { name: "sessions", icon: "table", load: () => import("./pages/sessions.js") },
  { name: "traces", icon: "traces", load: () => import("./pages/traces.js") },
  { name: "memories", icon: "memory", load: () => import("./pages/memories.js") },
  { name: "tasks", icon: "tasks", load: () => import("./pages/tasks.js") },
  { name: "health", icon: "health", load: () => import("./pages/health.js") },
  { name: "usage", icon: "usage", load: () => import("./pages/usage.js") },
  { name: "keys", icon: "key", load: () => import("./pages/keys.js") },
  { name: "privacy", icon: "lock", load: () => import("./pages/privacy.js") },
];

export const CHAT = "chat";

export function isPage(name) {
  return PAGES.some((page) => page.name === name);
}
