/** What stands below the sentence of a failure: the server's own words, which name the model and the status. */

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { addressOfPage } from "../route.js";
import { marked } from "./marks.js";

export function causeView({ reason, detail, code }) {
  if ((!reason && code !== "extra_missing") || !detail) return null;
  return h("small", { class: "cause" }, t("reason.told"), " ", h("span", { lang: "en", dir: "ltr" }, marked(detail)));
}

/** What code of the operator raised, or why the first model did not answer, with the trace that has it. */
export function causesView({ causes, trace }) {
  return [
    causes.map((cause) => h("p", { class: "cause", lang: "en", dir: "ltr" }, marked(cause))),
    h("a", { href: addressOfPage("traces", trace) }, t("traces.open")),
  ];
}
