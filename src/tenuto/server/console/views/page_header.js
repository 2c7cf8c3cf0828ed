/** Above a page beside the list of sessions: the way to that list where the screen is narrow, a title, a line below it. */

import { h, set, write } from "../dom.js";
import { t } from "../i18n.js";
import { iconButton } from "./buttons.js";
import { icon } from "./icons.js";

export function pageHeader(actions, title, ...lead) {
  const menu = iconButton("menu", t("sessions.open"), () => actions.house.drawer(true), { class: "narrow" });
  const heading = h("h1", { tabindex: -1 }, title);
  const node = h("header", {}, menu, h("div", { class: "titles" }, heading, h("p", {}, lead)));
  return { node, heading, draw: (state) => set(menu, "aria-expanded", String(state.drawer)), focus: () => menu.focus() };
}

/**
 * The same for a page of one owner's data: it names the owner, and another one is chosen there. Without a user a
 * page shows what belongs to all of them, or, as `alone` says, only what belongs to none.
 */
export function ownedHeader(actions, title, { alone = false } = {}, ...lead) {
  const header = pageHeader(actions, title, ...lead);
  const name = h("span", { dir: "auto" });
  const button = h(
    "button",
    { type: "button", class: "quiet owner", title: t("owner.choose"), on: { click: () => actions.house.want(true) } },
    icon("person"),
    name,
  );
  header.node.append(button);

  function draw(state) {
    header.draw(state);
    set(button, "hidden", state.scope === null);
    if (state.scope === null) return;
    write(name, state.scope.user ?? t(alone ? "owner.none" : "owner.all"));
  }

  return { ...header, draw };
}
