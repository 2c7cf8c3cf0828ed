/** What stands below the sentence of a failure: the server's own words, which name the model and the status. */

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { marked } from "./marks.js";

export function causeView({ reason, detail, code }) {
  if ((!reason && code !== "extra_missing") || !detail) return null;
  return h("small", { class: "cause" }, t("reason.told"), " ", h("span", { lang: "en", dir: "ltr" }, marked(detail)));
}
