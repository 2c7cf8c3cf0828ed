/** Fetches the pages of `pages.js` when they are first visited, and calls what they export. */

import { h } from "./dom.js";
import { addWords } from "./i18n.js";
import { isPage, PAGES } from "./pages.js";
import { partOf } from "./state.js";

export function pageLoader(store) {
  const loaded = new Map(); // by name: what the page exports, and its actions
  const fetched = new Map(); // by name: the promise of its module and its style
  const wholes = { get: store.get, patch: store.change };

  function fetchFiles(name) {
    const found = PAGES.find((page) => page.name === name);
    if (!fetched.has(name)) fetched.set(name, Promise.all([found.load(), addStyle(name)]));
    return fetched.get(name);
  }

  async function load(name) {
    const [page] = await fetchFiles(name);
    addWords(page.words);
    const own = partOf(partOf(wholes, "pages"), name);
    own.patch(page.initial);
    loaded.set(name, { ...page, actions: page.makeActions(store, own) });
  }

  /** Show the page: whether it did not come, only a reload of everything fetches again what failed. */
  async function open(name, id) {
    for (const [other, page] of loaded) if (other !== name) page.actions.close?.();
    try {
      if (!loaded.has(name)) await load(name);
    } catch {
      fetched.delete(name);
      store.change({ unloaded: name });
    }
    // Another page may have been opened meanwhile.
    const { page, id: now } = store.get();
    if (loaded.has(name) && page === name && now === id) await loaded.get(name).actions.open(id);
  }

  return {
    open,
    /** Ask for the files of a page before it can be opened; whether they came is for `open` to say. */
    prepare: (name) => void (isPage(name) && fetchFiles(name).catch(() => {})),
    /** No page is on screen. */
    close: () => loaded.forEach((page) => page.actions.close?.()),
    /** Another user takes over; returns the state that the pages begin with. */
    leave() {
      loaded.forEach((page) => page.actions.leave());
      return Object.fromEntries([...loaded].map(([name, page]) => [name, page.initial]));
    },
    /** The view of a page, or nothing while it is not loaded. */
    view(name, actions, ask) {
      const page = loaded.get(name);
      return page ? page.view({ ...actions, page: page.actions }, ask) : null;
    },
  };
}

/** Add the style sheet `css/NAME.css`, and wait for it. Bundled, this module stays in the folder that `css` is in. */
export function addStyle(name) {
  const href = new URL(`./css/${name}.css`, import.meta.url);
  return new Promise((resolve, reject) => {
    document.head.append(h("link", { rel: "stylesheet", href, on: { load: resolve, error: reject } }));
  });
}
