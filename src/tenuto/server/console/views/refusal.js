/** What went wrong on a page for those who answer for the tenant: users are told so, and how to get in. */

import { t } from "../i18n.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";

/** `phrase` says for whom it is. */
export function refusal(problem, phrase, actions) {
  if (problem?.code !== "forbidden") return problem && sentence(problem);
  return [t(phrase), " ", textButton(t("me.title"), () => actions.house.want(true))];
}
