/** Whether a receipt is as this installation signed it. */

import { fill, h, set, write } from "../dom.js";
import { has, t } from "../i18n.js";
import { whyRefused } from "./privacy_problem.js";

export function receiptCheckView(actions) {
  const file = h("input", { type: "file", name: "file", accept: ".json,application/json", required: true });
  const user = h("input", { name: "user", autocomplete: "off", spellcheck: "false" });
  const result = h("p", { role: "status" });
  const node = h(
    "form",
    { on: { submit: verify } },
    h("p", { class: "hint" }, t("privacy.check.lead")),
    h("label", {}, t("privacy.check.file"), file),
    h("label", {}, t("privacy.check.user"), user),
    h("button", { class: "text-button" }, t("privacy.check.send")),
    result,
  );
  let shown = null;

  async function verify(event) {
    event.preventDefault();
    await actions.page.verify(await file.files[0].text(), user.value);
  }

  function draw(now) {
    if (now === shown) return;
    shown = now;
    set(result, "class", now.problem || now.result?.valid === false ? "grave" : null);
    if (now.problem) fill(result, whyRefused(now.problem, actions));
    else write(result, now.result ? verdict(now.result) : "");
  }

  return { node, draw };
}

/** Reasons are few and stable; one without a phrase is told as the server says it. */
function verdict({ valid, why }) {
  if (valid) return t("privacy.check.valid");
  return t("privacy.check.invalid", { why: has(`privacy.why.${why}`) ? t(`privacy.why.${why}`) : why });
}
