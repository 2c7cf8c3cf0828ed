/** The page's frame: the list of sessions beside the talk, and a line that only screen readers hear. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { spoken } from "../marks.js";
import { currentTalk } from "../state.js";
import { beginningView } from "./beginning.js";
import { composerView } from "./composer.js";
import { confirmDialog, meDialog } from "./dialogs.js";
import { headingView } from "./heading.js";
import { memoriesView } from "./memories.js";
import { privacyDialog } from "./privacy.js";
import { sidebarView } from "./sidebar.js";
import { taskView } from "./task.js";
import { tasksView } from "./tasks.js";
import { tipView } from "./tip.js";
import { transcriptView } from "./transcript.js";

export function frameView(actions) {
  const confirm = confirmDialog();
  const identity = meDialog(actions);
  const privacy = privacyDialog(actions);
  const sidebar = sidebarView(actions, confirm.ask, privacy.open);
  const heading = headingView(actions);
  const beginning = beginningView(actions);
  const transcript = transcriptView(actions);
  const composer = composerView(actions);
  const pages = {
    memories: memoriesView(actions, confirm.ask),
    tasks: tasksView(actions),
    task: taskView(actions, confirm.ask),
  };
  const told = h("p", { class: "unseen", role: "status" });
  const outage = h("p", { class: "outage", role: "status", hidden: true }, t("outage"));
  const veil = h("div", { class: "veil", on: { click: () => actions.house.drawer(false) } });
  const main = h("main", {}, heading.node, outage, transcript.node, beginning.node, composer.node);
  const node = h(
    "div",
    { class: "frame", on: { keydown: (event) => event.key === "Escape" && actions.house.drawer(false) } },
    sidebar.node,
    veil,
    main,
    told,
    confirm.node,
    identity.node,
    privacy.node,
  );
  node.append(tipView(node).node);

  /** Where the list lies over the page, it has the focus, and gives it back. */
  function lay(drawer, below) {
    if (drawer === main.inert) return;
    set(node, "data-drawer", drawer);
    main.inert = drawer;
    (drawer ? sidebar : below).focus();
  }

  function draw(state) {
    const talk = currentTalk(state);
    const talking = state.page === "talk";
    const empty = talk !== null && talk.id === null && talk.items.length === 0 && state.problem === null;
    const page = pages[state.page] ?? null;
    const views = [sidebar, heading, beginning, transcript, composer, ...Object.values(pages), identity, privacy];
    for (const view of views) view.draw(state, talk);
    lay(state.drawer, page ?? heading);
    set(outage, "hidden", !state.away);
    set(heading.node, "hidden", !talking);
    set(composer.node, "hidden", !talking);
    set(transcript.node, "hidden", !talking || empty);
    set(beginning.node, "hidden", !talking || !empty);
    // On the page only while it is shown: a page has one first heading.
    for (const each of Object.values(pages)) if (each !== page) each.node.remove();
    if (page && !page.node.isConnected) main.append(page.node);
    write(told, spoken(state.told));
    const title = talking ? talk?.title : page.title(state);
    document.title = title ? `${spoken(title)} · ${t("app.title")}` : t("app.title");
  }

  return { node, draw };
}
