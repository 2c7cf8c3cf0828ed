/** What went wrong on a page for those who answer for the tenant or the server: users are told so, and how to get in. */

import { h } from "../dom.js";
import { t } from "../i18n.js";
import { sentence } from "../problem.js";
import { textButton } from "./buttons.js";

/** `phrase` says for whom it is, `command` makes a key for it, `retry` brings what could not be brought. */
export function refusal(problem, phrase, actions, { command = null, retry = null } = {}) {
  if (problem?.code !== "forbidden")
    return problem && [sentence(problem), retry && [" ", textButton(t("again"), retry)]];
  const enter = textButton(t("me.title"), () => actions.house.want(true));
  return [t(phrase), command && [" ", h("code", {}, command)], " ", enter];
}
