/** The list of sessions, with what one does about the page itself below it. */

import { present } from "../actions/deletion.js";
import { fill, h, set, write } from "../dom.js";
import { currentLanguage, languages, t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { me } from "../me.js";
import { CHAT, PAGES } from "../pages.js";
import { sentence } from "../problem.js";
import { addressOf, addressOfPage } from "../route.js";
import { titlesAlone } from "../state.js";
import { currentTheme } from "../theme.js";
import { iconButton, textButton } from "./buttons.js";
import { icon } from "./icons.js";
import { sessionRow } from "./session_row.js";

const TYPING = 200;
// More are on the page of sessions.
const MOST = 50;

export function sidebarView(actions) {
  const list = h("ul", { class: "sessions" });
  const rows = unhurried(
    list,
    keyed(list, () => sessionRow(actions)),
  );
  const notice = h("p", { class: "notice" });
  const all = h("a", { class: "all", href: addressOfPage("sessions") }, t("sessions.all"));
  const find = search(actions);
  const shelf = h("div", { class: "shelf" }, list, notice, all);
  const house = h("p", { class: "house" });
  const who = h("span");
  const paint = theme(actions);
  const places = PAGES.map(place);
  const finder = h(
    "button",
    { type: "button", class: "quiet find", title: t("find.open"), on: { click: () => actions.find() } },
    icon("search"),
    h("span", { class: "unseen" }, t("find.open")),
    h("kbd", { "aria-hidden": "true" }, "Ctrl K"),
  );
  const close = iconButton("close", t("sessions.close"), () => actions.house.drawer(false), { class: "narrow" });
  const node = h(
    "nav",
    { class: "sidebar", "aria-label": t("sessions.title") },
    h("div", { class: "masthead" }, h("a", { class: "wordmark", href: addressOf(null) }, "tenuto"), finder, close),
    h(
      "a",
      { class: "new", href: addressOf(null), on: { click: () => actions.begin() } },
      icon("plus"),
      t("sessions.new"),
    ),
    h(
      "ul",
      { class: "places", "aria-label": t("pages.title") },
      places.map((each) => h("li", {}, each)),
    ),
    find.node,
    shelf,
    h(
      "div",
      { class: "foot" },
      h("div", { class: "foot-row" }, identity(actions, who), language(actions), paint.node),
      house,
    ),
  );
  let last = null;

  function draw(state, talk) {
    set(node, "data-drawer", state.drawer);
    for (const each of places) set(each, "aria-current", each.dataset.page === state.page && "page");
    write(who, called(state));
    paint.draw();
    if (state.house && last?.house !== state.house)
      fill(house, `${state.house.version} · ${state.house.store} · `, h("a", { href: "docs" }, t("routes")));
    const { cursor, loading, problem, query } = state.sessions;
    const items = present(state);
    // The page of sessions has the list, and its search.
    for (const part of [find.node, shelf]) set(part, "hidden", state.page === "sessions");
    find.draw(state);
    if (last?.sessions !== state.sessions || last.deleted !== state.deleted) {
      set(all, "hidden", cursor === null && items.length <= MOST);
      fill(
        notice,
        problem
          ? [sentence(problem), " ", textButton(t("again"), actions.sessions.refresh)]
          : said(items, loading, nothingFound(state)),
      );
      set(notice, "hidden", !problem && items.length > 0);
    }
    last = state;
    rows(
      items.slice(0, MOST).map((session) => ({ key: session.id, session })),
      state.page === CHAT ? talk?.id ?? null : null,
    );
  }

  return { node, draw, focus: () => close.focus() };
}

/** The user that is named or that the key is bound to; a key may be bound to one that the page has not asked for. */
function called({ scope }) {
  const { key, user } = me();
  return user || scope?.user || t(key ? "mark.API_KEY" : "me.button");
}

function place({ name, icon: picture }) {
  return h("a", { class: "place", href: addressOfPage(name), data: { page: name } }, icon(picture), t(`page.${name}`));
}

/** Draws the rows, but not under a pressed pointer: a row that moves away or is made anew would take the click along. */
function unhurried(list, rows) {
  let pressed = false;
  let late = null;

  function release() {
    pressed = false;
    if (late) rows(...late);
    late = null;
  }

  list.addEventListener("pointerdown", () => {
    pressed = true;
    // The click comes right after the pointer is up.
    for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(release), { once: true });
  });
  return (...items) => {
    if (pressed) late = items;
    else rows(...items);
  };
}

function said(items, loading, nothing) {
  return items.length || loading ? "" : nothing || t("sessions.none");
}

/** What stands where a search found nothing; nothing where nothing is searched for. */
export function nothingFound(state) {
  if (!state.sessions.query) return "";
  return t(titlesAlone(state) ? "sessions.nothing.titles" : "sessions.nothing");
}

/** A field that searches the sessions once nothing is typed for a moment. */
export function search(actions) {
  let waiting;
  const later = () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => actions.sessions.search(input.value.trim()), TYPING);
  };
  const input = h("input", {
    type: "search",
    placeholder: t("sessions.search"),
    "aria-label": t("sessions.search"),
    on: { input: later },
  });
  const node = h("div", { class: "search", role: "search", "aria-label": t("sessions.search") }, icon("search"), input);

  /** Sessions may have been searched for elsewhere on the page. */
  function draw(state) {
    const { query } = state.sessions;
    const name = t(titlesAlone(state) ? "sessions.search.titles" : "sessions.search");
    set(input, "placeholder", name);
    for (const each of [input, node]) set(each, "aria-label", name);
    if (input !== document.activeElement && input.value.trim() !== query) input.value = query;
  }

  return { node, draw };
}

function identity(actions, who) {
  const open = () => actions.house.want(true);
  return h(
    "button",
    { type: "button", class: "quiet", title: t("me.title"), on: { click: open } },
    icon("person"),
    who,
  );
}

function language(actions) {
  const next = languages.find((each) => each !== currentLanguage());
  return h(
    "button",
    {
      type: "button",
      id: "language",
      class: "quiet",
      lang: next,
      title: t("language.label"),
      on: { click: () => actions.speak(next) },
    },
    t("language.switch"),
  );
}

function theme(actions) {
  const node = h("button", { type: "button", class: "quiet", on: { click: () => actions.paint(other()) } });
  return { node, draw: () => write(node, t(`theme.${other()}`)) };
}

function other() {
  return currentTheme() === "dark" ? "light" : "dark";
}
