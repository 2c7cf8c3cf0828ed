/**
 * A field over the page that opens anything by its name, with the keyboard alone: pages, assistants, sessions, tasks.
 * The field keeps the focus; the entry that Enter opens is named to screen readers as its active descendant.
 */

import { fill, h, set, write } from "../dom.js";
import { moment } from "../format.js";
import { called, t } from "../i18n.js";
import { spoken } from "../marks.js";
import { PAGES } from "../pages.js";
import { Problem, sentence } from "../problem.js";
import { addressOf, addressOfPage, addressOfTask } from "../route.js";
import { titlesAlone } from "../state.js";
import { excerpt } from "./excerpt.js";
import { icon } from "./icons.js";
import { marked } from "./marks.js";

const TYPING = 120;
const RECENT = 6;
const MOST = 8; // of one kind

/** `find` brings what is not on the page: sessions by their words, and tasks. */
export function finderView(actions, { sessions, tasks }) {
  const field = h("input", {
    type: "text",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    "aria-label": t("find.title"),
    "aria-expanded": "true",
    "aria-autocomplete": "list",
    "aria-controls": "find-list",
    placeholder: t("find.field"),
    on: { input: () => look() },
  });
  const list = h("div", { id: "find-list", role: "listbox", "aria-label": t("find.title") });
  const notice = h("p", { class: "hint", hidden: true });
  const count = h("p", { class: "unseen", role: "status" });
  const keys = h("p", { class: "keys" });
  const node = h("dialog", { class: "finder", "aria-label": t("find.title"), on: { click: leave } });
  node.append(h("div", { class: "find-field" }, icon("search"), field), list, notice, count, keys);
  field.addEventListener("keydown", press);

  let state = null;
  let found = { query: "", sessions: null }; // what the server found last
  let known = []; // the tasks
  let problem = null;
  let entries = [];
  let active = 0;
  let waiting;

  function open(now) {
    state = now;
    write(keys, [t("find.keys"), titlesAlone(now) && t("find.titles")].filter(Boolean).join(" · "));
    found = { query: "", sessions: null };
    problem = null;
    field.value = "";
    node.showModal();
    field.focus();
    look();
    tasks().then(
      (brought) => {
        known = brought;
        show();
      },
      () => {}, // what else has a name is found without them
    );
  }

  /** What came since it was opened stands there as well, such as the session of the answer that has just ended. */
  function draw(now) {
    if (!node.open) return;
    const same = ["sessions", "deleted", "assistants"].every((name) => now[name] === state[name]);
    state = now;
    if (!same) show();
  }

  /** A click beside the window closes it. */
  function leave(event) {
    if (event.target === node) node.close();
  }

  function look() {
    clearTimeout(waiting);
    entries = [];
    const query = field.value.trim();
    if (query) waiting = setTimeout(() => search(query), TYPING);
    show();
  }

  async function search(query) {
    try {
      const brought = await sessions(query);
      found = { query, sessions: brought };
      problem = null;
    } catch (error) {
      problem = Problem.from(error);
    }
    if (query === field.value.trim()) show();
  }

  function show() {
    const query = field.value.trim();
    const groups = query ? named(query) : beginning();
    const chosen = entries[active] && keyOf(entries[active]);
    entries = groups.flatMap(({ items }) => items);
    // What comes later stands below; the choice stays where it was.
    active = Math.max(
      0,
      entries.findIndex((entry) => keyOf(entry) === chosen),
    );
    let place = 0;
    fill(
      list,
      groups.map(({ name, items }) =>
        h(
          "div",
          { role: "group", "aria-label": t(`find.${name}`) },
          h("p", { class: "find-group", "aria-hidden": "true" }, t(`find.${name}`)),
          items.map((entry) => row(entry, place++)),
        ),
      ),
    );
    const none = entries.length === 0;
    write(notice, problem ? sentence(problem) : none ? t("find.none") : "");
    set(notice, "hidden", !problem && !none);
    write(count, t("find.count", { count: entries.length }));
    mark();
  }

  function row({ picture, text, hint, match, href }, place) {
    return h(
      "a",
      {
        id: `find-${place}`,
        role: "option",
        tabindex: -1,
        href,
        "aria-selected": "false",
        on: { click: (event) => go(event, place) },
      },
      icon(picture),
      h("span", { class: "name" }, marked(text, { still: true })),
      match && h("span", { class: "excerpt", dir: "auto" }, excerpt(match)),
      hint && h("span", { class: "hint" }, hint),
    );
  }

  function mark() {
    for (const option of list.querySelectorAll("[role=option]"))
      set(option, "aria-selected", String(option.id === `find-${active}`));
    set(field, "aria-activedescendant", entries.length > 0 && `find-${active}`);
    list.querySelector(`#find-${active}`)?.scrollIntoView({ block: "nearest" });
  }

  function press(event) {
    if (event.isComposing || event.keyCode === 229) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && entries.length > 0) {
      event.preventDefault();
      active = (active + step + entries.length) % entries.length;
      mark();
    }
    if (event.key === "Enter" && entries[active]) go(event, active);
  }

  function go(event, place) {
    if (event.ctrlKey || event.metaKey) return; // a link as any other, opened beside
    event.preventDefault();
    const { act, href } = entries[place];
    node.close();
    act?.();
    location.hash = href;
  }

  function beginning() {
    const hidden = new Set(state.deleted.hidden);
    const recent = state.sessions.items.filter(({ id }) => !hidden.has(id)).slice(0, RECENT);
    return groupsOf({ recent: recent.map(sessionEntry), pages: pages(), assistants: assistants() });
  }

  function named(query) {
    const fits = ({ text, also = "" }) => `${spoken(text)} ${also}`.toLowerCase().includes(query.toLowerCase());
    const hidden = new Set(state.deleted.hidden);
    // Until the server has answered, those that are on the page already.
    const some = found.query === query ? found.sessions : state.sessions.items;
    const titles = some.filter(({ id }) => !hidden.has(id)).map(sessionEntry);
    return groupsOf({
      pages: pages().filter(fits),
      sessions: (found.query === query ? titles : titles.filter(fits)).slice(0, MOST),
      tasks: known.map(taskEntry).filter(fits).slice(0, MOST),
      assistants: assistants().filter(fits),
    });
  }

  function assistants() {
    return state.assistants.map(({ name, titles, description }) => ({
      picture: "plus",
      text: called(titles, name),
      also: name,
      hint: called(description, ""),
      href: addressOf(null),
      act: () => {
        actions.begin();
        actions.house.choose(name);
      },
    }));
  }

  return { node, open, draw };
}

function keyOf(entry) {
  return `${entry.href} ${entry.text}`;
}

function groupsOf(groups) {
  return Object.entries(groups)
    .filter(([, items]) => items.length > 0)
    .map(([name, items]) => ({ name, items }));
}

function pages() {
  const others = PAGES.map(({ name, icon: picture }) => ({
    picture,
    text: t(`page.${name}`),
    also: name,
    href: addressOfPage(name),
  }));
  return [{ picture: "plus", text: t("sessions.new"), also: "new chat", href: addressOf(null) }, ...others];
}

function sessionEntry({ id, title, updated_at: at, user, match }) {
  const hint = [user, moment(at)].filter(Boolean).join(" · ");
  return { picture: "table", text: title || t("sessions.untitled"), hint, match, href: addressOf(id) };
}

function taskEntry({ id, goal, type, created_at: at }) {
  return { picture: "tasks", text: goal || type, also: `${type} ${id}`, hint: moment(at), href: addressOfTask(id) };
}
