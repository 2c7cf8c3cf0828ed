/** The page's frame: the list of sessions beside the talk, and a line that only screen readers hear. */

import { h, set, write } from "../dom.js";
import { addWords, t } from "../i18n.js";
import { spoken } from "../marks.js";
import { addStyle } from "../page_loader.js";
import { CHAT } from "../pages.js";
import { currentTalk } from "../state.js";
import { beginningView } from "./beginning.js";
import { composerView } from "./composer.js";
import { confirmDialog, meDialog } from "./dialogs.js";
import { headingView } from "./heading.js";
import { sidebarView } from "./sidebar.js";
import { tipView } from "./tip.js";
import { transcriptView } from "./transcript.js";
import { undoView } from "./undo.js";
import { waitingView } from "./waiting.js";

export function frameView(actions, pages) {
  const confirm = confirmDialog();
  const identity = meDialog(actions);
  const sidebar = sidebarView({ ...actions, find });
  const heading = headingView(actions);
  const beginning = beginningView(actions);
  const transcript = transcriptView({ ...actions, ask: confirm.ask });
  const composer = composerView(actions);
  const waiting = waitingView(actions);
  const undo = undoView(actions);
  let finder = null;
  let shown = null; // the page that was drawn last, and the id on it
  const views = new Map(); // of the pages that were visited, by name
  const told = h("p", { class: "unseen", role: "status" });
  const outage = h("p", { class: "outage", role: "status", hidden: true }, t("outage"));
  const veil = h("div", { class: "veil", on: { click: () => actions.house.drawer(false) } });
  const main = h("main", { id: "main", tabindex: -1 }, outage, heading.node, transcript.node, beginning.node, composer.node);
  const skip = h("a", { class: "skip", href: "#main", on: { click: skipTo } }, t("pages.skip"));
  const node = h(
    "div",
    { class: "frame", on: { keydown: press, dragover: dragOver, dragleave: dragLeave, drop } },
    skip,
    sidebar.node,
    veil,
    main,
    told,
    undo.node,
    confirm.node,
    identity.node,
  );
  node.append(tipView(node).node);

  /** Past the list of sessions; the address stays that of the page. */
  function skipTo(event) {
    event.preventDefault();
    main.focus();
  }

  function press(event) {
    if (event.key === "Escape" && main.inert) {
      event.preventDefault();
      actions.house.drawer(false);
    }
    undo.press(event);
  }

  /** Files that are dropped anywhere are attached to what is being written; the browser would leave the page for them. */
  function dragOver(event) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    const taken = composer.takesFiles() && !document.querySelector("dialog[open]");
    event.dataTransfer.dropEffect = taken ? "copy" : "none";
    set(node, "data-dropping", taken);
  }

  function dragLeave({ relatedTarget }) {
    if (!node.contains(relatedTarget)) set(node, "data-dropping", false);
  }

  function drop(event) {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    set(node, "data-dropping", false);
    if (composer.takesFiles()) composer.attach(event.dataTransfer.files);
  }

  /** Open the window that opens anything by name; it is fetched when it is first asked for. */
  async function find() {
    if (document.querySelector("dialog[open]")) return;
    try {
      finder ??= await fetchFinder();
    } catch {
      return; // as it is where the server is away
    }
    if (!finder.node.isConnected) node.append(finder.node);
    if (!finder.node.open) finder.open(actions.state());
  }

  async function fetchFinder() {
    const [module] = await Promise.all([import("../finder.js"), addStyle("finder")]);
    addWords(module.words);
    return module.view(actions, actions.find);
  }

  /** Where the list lies over the page, it has the focus, and gives it back. */
  function lay(drawer, below) {
    if (drawer === main.inert) return;
    set(node, "data-drawer", drawer);
    main.inert = drawer;
    (drawer ? sidebar : below).focus();
  }

  /** The page beside the chat that is on screen, or what stands in its place while it is fetched. */
  function pageOn({ page }) {
    if (page === CHAT) return null;
    if (!views.has(page)) {
      const view = pages.view(page, actions, confirm.ask);
      if (view) views.set(page, view);
    }
    return views.get(page) ?? waiting;
  }

  function draw(state) {
    const talk = currentTalk(state);
    const talking = state.page === CHAT;
    const empty = talk !== null && talk.id === null && talk.items.length === 0 && state.problem === null;
    const page = pageOn(state);
    const now = state.pages[state.page];
    for (const view of [sidebar, heading, beginning, transcript, composer, undo, identity]) view.draw(state, talk);
    page?.draw(state, now);
    finder?.draw(state);
    lay(state.drawer, page ?? heading);
    set(outage, "hidden", !state.away);
    set(heading.node, "hidden", !talking);
    set(composer.node, "hidden", !talking);
    set(transcript.node, "hidden", !talking || empty);
    set(beginning.node, "hidden", !talking || !empty);
    // On the page only while it is shown: a page has one first heading.
    for (const each of [waiting, ...views.values()]) if (each !== page) each.node.remove();
    if (page && !page.node.isConnected) main.append(page.node);
    // After a link to another page, keyboard and screen reader go on from its heading.
    const moved = shown && (state.page !== shown.name || state.id !== shown.id);
    const lost = shown && page !== shown.page && document.activeElement === document.body;
    if (page && (moved || lost)) page.node.querySelector("h1").focus();
    shown = { name: state.page, id: state.id, page };
    write(told, spoken(state.told));
    const title = talking ? talk?.title : page.title(state, now);
    document.title = title ? `${spoken(title)} · ${t("app.title")}` : t("app.title");
  }

  return { node, draw, find };
}
