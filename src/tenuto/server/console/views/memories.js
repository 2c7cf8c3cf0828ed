/** What is remembered: preferences first, then the rest by kind, or what a search finds and why. */

import { fill, h, set } from "../dom.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";
import { icon } from "./icons.js";
import { memoryRow } from "./memory_row.js";
import { ownedHeader } from "./page_header.js";
import { personView } from "./person.js";

const TYPING = 250;
const SHOWN = [null, "fact", "episode"];
const WRITTEN = ["fact", "preference"];

export function memoriesView(actions, ask) {
  const header = ownedHeader(actions, t("page.memories"), { alone: true }, t("memories.lead"));
  const notice = h("p", { class: "notice", role: "status" });
  const refused = h("p", { class: "notice", role: "alert" });
  const liked = section("memories.preferences", actions, ask);
  const rest = section("memories.others", actions, ask);
  const found = section("memories.found", actions, ask);
  const tabs = kinds(actions);
  rest.node.insertBefore(tabs.node, rest.list);
  const more = textButton(t("sessions.more"), () => actions.page.more());
  rest.node.append(more);
  const degraded = h("p", { class: "hint" }, t("memories.degraded"));
  found.node.insertBefore(h("p", { class: "hint" }, t("memories.why")), found.list);
  found.node.append(degraded);
  const unread = h("p", { class: "hint" }, t("memories.unread"));
  const adding = addForm(actions);
  const seeking = search(actions);
  const person = personView(actions, ask);
  const node = h(
    "div",
    { class: "page memories" },
    header.node,
    h(
      "div",
      { class: "scroll" },
      h("div", { class: "column" }, seeking.node, notice, refused, unread, found.node, liked.node, rest.node, adding, person.node),
    ),
  );
  let last = null;

  function draw(state, now) {
    header.draw(state);
    person.draw(state, now);
    if (now === last) return;
    last = now;
    const { preferences, items, hits, cursor, kind, query, loading, problem } = now;
    const seen = !problem && !loading;
    seeking.draw(query);
    for (const each of adding.elements) each.disabled = asksForUser(problem);
    fill(notice, problem ? trouble(problem, actions) : loading && t("app.loading"));
    set(notice, "hidden", seen);
    fill(refused, now.refused && sentence(now.refused));
    set(refused, "hidden", !now.refused);
    set(found.node, "hidden", !hits || !seen);
    set(liked.node, "hidden", Boolean(hits) || !seen);
    set(rest.node, "hidden", Boolean(hits) || !seen);
    set(more, "hidden", cursor === null);
    set(degraded, "hidden", !now.degraded || now.unread);
    set(unread, "hidden", !now.unread || !seen);
    tabs.draw(kind);
    const own = state.scope?.user;
    found.draw((hits ?? []).map((hit) => ({ key: hit.memory.id, memory: hit.memory, hit, own })), t("memories.nothing"));
    liked.draw(preferences.map((memory) => row(memory, own)), t("memories.preferences.none"));
    rest.draw(items.map((memory) => row(memory, own)), t("memories.none"));
  }

  return { node, draw, focus: header.focus, title: () => t("page.memories") };
}

function row(memory, own) {
  return { key: memory.id, memory, hit: null, own };
}

/** A heading, its memories, and a sentence where there are none. */
function section(name, actions, ask) {
  const list = h("ul", { class: "memory-list" });
  const none = h("p", { class: "hint" });
  const heading = h("h2", {}, t(name));
  const rows = keyed(list, () => memoryRow(actions, ask));
  return {
    node: h("section", { data: { section: name } }, heading, list, none),
    list,
    draw(items, otherwise) {
      rows(items);
      fill(none, otherwise);
      set(none, "hidden", items.length > 0);
    },
  };
}

function asksForUser(problem) {
  return problem?.code === "invalid" && problem.status === 400 && problem.detail.includes("X-User-ID");
}

/** Where no user is named, say so; else what went wrong, and try again. */
function trouble(problem, actions) {
  if (asksForUser(problem)) return [t("memories.no_user"), " ", textButton(t("me.name"), () => actions.house.want(true))];
  return [sentence(problem), " ", textButton(t("again"), () => actions.page.refresh())];
}

function search(actions) {
  let waiting;
  const input = h("input", {
    type: "search",
    maxlength: 10000,
    placeholder: t("memories.search"),
    "aria-label": t("memories.search"),
    on: {
      input: () => {
        clearTimeout(waiting);
        waiting = setTimeout(() => actions.page.search(input.value.trim()), TYPING);
      },
    },
  });
  return {
    node: h("div", { class: "search", role: "search", "aria-label": t("memories.search") }, icon("search"), input),
    draw(query) {
      // The page may be built anew, in another language, while something is searched for.
      if (document.activeElement !== input && input.value.trim() !== query) input.value = query;
    },
  };
}

function kinds(actions) {
  const buttons = SHOWN.map((kind) =>
    h(
      "button",
      { type: "button", class: "quiet", data: { kind }, on: { click: () => actions.page.show(kind) } },
      t(`memories.tab.${kind ?? "all"}`),
    ),
  );
  return {
    node: h("div", { class: "kinds", role: "group", "aria-label": t("memories.kinds") }, buttons),
    draw(chosen) {
      buttons.forEach((button, place) => set(button, "aria-pressed", String(SHOWN[place] === chosen)));
    },
  };
}

function addForm(actions) {
  const text = h("input", {
    name: "text",
    required: true,
    maxlength: 4000,
    autocomplete: "off",
    placeholder: t("memories.add.text"),
    "aria-label": t("memories.add.text"),
  });
  const kind = h(
    "select",
    { name: "kind", "aria-label": t("memories.add.kind") },
    WRITTEN.map((each) => h("option", { value: each }, t(`memories.kind.${each}`))),
  );
  async function add(event) {
    event.preventDefault();
    const words = text.value.trim();
    if (words && (await actions.page.add(words, kind.value, t("memories.added")))) text.value = "";
  }
  return h(
    "form",
    { class: "remember", "aria-label": t("memories.add"), on: { submit: add } },
    text,
    kind,
    h("button", { class: "text-button strong" }, t("memories.add")),
  );
}
