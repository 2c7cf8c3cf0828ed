/** In place of a page that is being fetched, or could not be. */

import { fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";
import { pageHeader } from "./page_header.js";

export function waitingView(actions) {
  const header = pageHeader(actions, "");
  const notice = h("p", { class: "notice", role: "status" });
  const node = h("div", { class: "page" }, header.node, h("div", { class: "column" }, notice));
  const title = ({ page }) => t(`page.${page}`);

  function draw(state) {
    header.draw(state);
    fill(header.heading, title(state));
    fill(notice, said(state));
  }

  function said({ page, problem, unloaded }) {
    if (problem) return [sentence(problem), " ", textButton(t("again"), actions.start)];
    // A module that could not be fetched once is not asked for again until the document is loaded anew.
    if (unloaded === page) return [t("pages.unloaded"), " ", textButton(t("pages.reload"), () => location.reload())];
    return t("app.loading");
  }

  return { node, draw, title, focus: header.focus };
}
