/** The page of private data. */

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { auditView } from "./audit.js";
import { erasureView } from "./erasure.js";
import { pageHeader } from "./page_header.js";
import { policyView } from "./policy.js";
import { receiptCheckView } from "./receipt_check.js";
import { scanView } from "./scan.js";

export function privacyView(actions, ask) {
  const header = pageHeader(actions, t("page.privacy"), t("privacy.page.lead"));
  const views = {
    policy: policyView(),
    scan: scanView(actions, ask),
    erasure: erasureView(actions),
    check: receiptCheckView(actions),
    audit: auditView(actions),
  };
  const sections = Object.entries(views).map(([name, { node }]) => {
    const title = t(`privacy.${name}`);
    return h("section", { data: { section: name }, "aria-label": title }, h("h2", {}, title), node);
  });
  const column = h("div", { class: "column" }, sections);
  const node = h("div", { class: "page private" }, header.node, h("div", { class: "scroll" }, column));

  function draw(state, now) {
    header.draw(state);
    views.policy.draw(state);
    for (const name of ["scan", "erasure", "check", "audit"]) views[name].draw(now[name]);
  }

  return { node, draw, focus: header.focus, title: () => t("page.privacy") };
}
