/** Why a page of operators shows nothing, and how to get in. */

import { sentence } from "../problem.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { textButton } from "./buttons.js";

/** `phrase` says whom the page is for, `role` which one the key for it has. */
export function refusal(problem, phrase, actions, role = "admin") {
  if (problem.status !== 403)
    return [sentence(problem), " ", textButton(t("again"), () => actions.page.open(null))];
  return [
    t(phrase),
    " ",
    h("code", {}, `tenuto keys create --tenant ID --role ${role}`),
    " ",
    textButton(t("me.title"), () => actions.house.want(true)),
  ];
}
