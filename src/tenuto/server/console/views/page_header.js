/** Above a page beside the list of sessions: the way to that list where the screen is narrow, a title, a line below it. */

import { h, set } from "../dom.js";
import { t } from "../i18n.js";
import { iconButton } from "./buttons.js";

export function pageHeader(actions, title, ...lead) {
  const menu = iconButton("menu", t("sessions.open"), () => actions.house.drawer(true), { class: "narrow" });
  const heading = h("h1", { tabindex: -1 }, title);
  const node = h("header", {}, menu, h("div", { class: "titles" }, heading, h("p", {}, lead)));
  return { node, heading, draw: (state) => set(menu, "aria-expanded", String(state.drawer)), focus: () => menu.focus() };
}
