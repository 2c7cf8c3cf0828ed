/** Why a page of operators shows nothing, and how to get in. */

import { sentence } from "../problem.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";

/** `role` names the phrase that says whom the page is for. */
export function refusal(problem, role, actions) {
  if (problem.status !== 403)
    return [sentence(problem), " ", textButton(t("again"), () => actions.page.open(null))];
  return [
    t(role),
    " ",
    h("code", {}, "tenuto keys create --tenant ID --role admin"),
    " ",
    textButton(t("me.title"), () => actions.house.want(true)),
  ];
}
