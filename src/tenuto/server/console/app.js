/** The page begins here: state, actions, views, and the address that says which conversation is open. */

import { deletionActions } from "./actions/deletion.js";
import { eventActions } from "./actions/events.js";
import { houseActions } from "./actions/house.js";
import { sessionActions } from "./actions/sessions.js";
import { talkActions } from "./actions/talks.js";
import { turnActions } from "./actions/turns.js";
import { api, onAnswer } from "./api.js";
import { currentLanguage, speak, t } from "./i18n.js";
import { me } from "./me.js";
import { pageLoader } from "./page_loader.js";
import { CHAT } from "./pages.js";
import { dropQueues } from "./queue.js";
import { go, placeInAddress } from "./route.js";
import { BEGINNING, currentTalk, makeStore, titlesAlone } from "./state.js";
import { paint } from "./theme.js";
import { frameView } from "./views/frame.js";

const store = makeStore();
const house = houseActions(store);
const sessions = sessionActions(store);
const deletion = deletionActions(store, sessions, () => review());
const talks = talkActions(store);
const turns = turnActions(store, talks, sessions, write);
const pages = pageLoader(store);
const events = eventActions(store, { sessions, talks, turns });
const actions = {
  house,
  sessions,
  deletion,
  talks,
  turns,
  trace: api.trace,
  state: store.get,
  find: {
    sessions: findSessions,
    tasks: async () => (await api.tasks({ limit: 100 })).tasks,
  },
  draft: { text: "", attachments: [] }, // what is not sent yet: it outlives the field, which is made anew with every view
  write,
  start,
  begin,
  forget,
  undo,
  identify,
  speak: switchTo,
  paint: repaint,
};

/** Sessions by words of theirs, or by a part of their title; and among the newest by the beginning or the end of their id. */
async function findSessions(query) {
  const titled = (await api.sessions({ query, limit: 8, titles: titlesAlone(store.get()) })).sessions;
  if (!/^(?:[a-z]+[-_])?[0-9a-f-]{4,}$/.test(query)) return titled;
  const newest = (await api.sessions({ limit: 1000 })).sessions;
  const named = newest.filter(({ id }) => id.startsWith(query) || id.endsWith(query));
  return [...named, ...titled.filter(({ id }) => !named.some((one) => one.id === id))];
}

let forgetView = () => {};
let find = () => {};
let left = null; // the session that was on screen when it was deleted

/** Build every view anew, in the language of now. */
function mount() {
  forgetView();
  document.documentElement.lang = currentLanguage() === "zh" ? "zh-Hans" : "en";
  const frame = frameView(actions, pages);
  document.body.replaceChildren(frame.node);
  frame.draw(store.get());
  forgetView = store.subscribe(frame.draw);
  find = frame.find;
}

/** Learn what runs here, bring the list, open what the address names. */
async function start() {
  const known = await house.begin();
  if (!known) return;
  deletion.resume();
  await Promise.all([sessions.refresh(), follow()]);
}

/** Show what the address names. */
async function follow() {
  const { page, id } = placeInAddress();
  store.change({ page, id });
  if (page !== CHAT) {
    store.change({ drawer: false });
    return Promise.all([pages.open(page, id), house.place()]);
  }
  pages.close();
  const talk = currentTalk(store.get());
  if (talk && talk.id === id && !talk.problem) return store.change({ drawer: false });
  // What was deleted is not shown again, not even while that could be undone.
  if (deletion.holds(id)) await deletion.commit();
  return id === null ? talks.begin() : turns.open(id);
}

/** What is on screen may have changed elsewhere. */
function review() {
  const { page, id } = placeInAddress();
  return page === CHAT ? null : pages.open(page, id);
}

/** A new talk, also where the address already says so. */
function begin() {
  const { page, id } = placeInAddress();
  if (page === CHAT && id === null) talks.begin();
}

/** Delete sessions; the one on screen is left. */
function forget(gone) {
  const { page, id } = placeInAddress();
  deletion.remove(gone);
  store.change({ told: t("undo.told", { count: gone.length }) });
  if (page === CHAT && deletion.holds(id)) {
    left = id;
    go(null);
  }
}

function undo() {
  const back = deletion.undo();
  const { page, id } = placeInAddress();
  if (page === CHAT && id === null && back.some((session) => session.id === left)) go(left);
  store.change({ told: t("undo.undone") });
}

/**
 * Switch the user: nothing of what is on screen, half written or on its way is theirs. Where the server refused the
 * key, the user is most likely the same: what the server did not take is kept to be sent again.
 */
function identify(who) {
  const { key, user } = me();
  const same = key === who.key && user === who.user;
  const asked = store.get().wanted === "asked";
  const { text, attachments } = actions.draft;
  if (!asked && !text && attachments.length === 0) write(...unsent(currentTalk(store.get())));
  else if (asked && !same) Object.assign(actions.draft, { text: "", attachments: [] });
  if (!same) {
    deletion.leave();
    if (asked) dropQueues();
  }
  house.identify(who);
  if (same) return start();
  turns.hush();
  events.stop();
  sessions.leave();
  store.change({ ...BEGINNING, pages: pages.leave() });
  mount();
  return start();
}

/** What the server did not take of a talk. What waits in a session is there again when the session is opened. */
function unsent(talk) {
  const waiting = talk && talk.id === null ? talk.queue : [];
  const messages = [refusedMessage(talk), ...waiting].filter(Boolean);
  return messages.map(({ text, attachments }) => ({ text, attachments: attachments.filter(({ file }) => file) }));
}

/** The message at the end of a talk that came with a refused key, or whose answer has not begun: it was sent with that key. */
function refusedMessage(talk) {
  const { problem, again, trace } = talk?.items.at(-1) ?? {};
  const said = talk?.items.findLast((item) => item.kind === "words");
  const isRefused = problem?.status === 401 && again?.request.message !== undefined;
  return (talk?.running && trace === null) || isRefused ? said : null;
}

/** Put messages that were not sent before what is written already. */
function write(...messages) {
  const { draft } = actions;
  draft.text = [...messages.map(({ text }) => text), draft.text].filter(Boolean).join("\n");
  draft.attachments = [...messages.flatMap(({ attachments }) => attachments), ...draft.attachments];
  store.change({});
}

/** Escape stops the answer on screen, wherever the focus is, unless it closes something that lies over it. */
function stopOnEscape(event) {
  if (event.key !== "Escape" || event.defaultPrevented || event.isComposing || event.keyCode === 229) return;
  const { page, talks: all, current } = store.get();
  if (page === CHAT && all[current]?.running && !document.querySelector("dialog[open]")) turns.stop(current);
}

/** Ctrl+K opens anything by name, wherever the focus is. */
function findOnKey(event) {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (store.get().house) find();
}

/** Every word is another one now, so every view is built anew; the focus stays where it was. */
function switchTo(language) {
  const { id } = document.activeElement;
  speak(language);
  mount();
  if (id) document.getElementById(id)?.focus();
}

function repaint(theme) {
  paint(theme);
  store.change({});
}

store.change(placeInAddress());
pages.prepare(store.get().page);
paint();
mount();
onAnswer((away) => house.noteStore(away) && sessions.refresh());
addEventListener("keydown", stopOnEscape);
addEventListener("keydown", findOnKey);
addEventListener("hashchange", () => {
  for (const dialog of document.querySelectorAll("dialog[open]")) dialog.close(); // a question about the page before
  if (placeInAddress().page === "sessions") sessions.refresh(); // the list of the sidebar, on a page of its own
  return follow();
});
addEventListener("pagehide", deletion.leavePage);
addEventListener("pageshow", (event) => event.persisted && deletion.resume());
addEventListener("focus", () => store.get().house && Promise.all([sessions.refresh(), house.review(), review()]));
start();
