/** Erase a user: the id is typed twice, and the receipt is shown and can be kept. */

import { fill, h, set } from "../dom.js";
import { t } from "../i18n.js";
import { whyRefused } from "./privacy_problem.js";
import { receiptView } from "./receipt.js";

export function erasureView(actions) {
  const user = h("input", { name: "user", autocomplete: "off", spellcheck: "false", required: true });
  const again = h("input", { name: "again", autocomplete: "off", spellcheck: "false", required: true });
  const send = h("button", { class: "text-button grave", disabled: true }, t("privacy.erasure.send"));
  const form = h(
    "form",
    { on: { submit: erase, input: compare } },
    h("p", { class: "hint" }, t("privacy.erasure.lead")),
    h("label", {}, t("privacy.erasure.user"), user),
    h("label", {}, t("privacy.erasure.again"), again),
    send,
  );
  const problem = h("p", { class: "grave", role: "alert" });
  const receipt = h("div", { role: "status" });
  const node = h("div", {}, form, problem, receipt);
  let now = { busy: false };
  let shown = null;

  function compare() {
    send.disabled = now.busy || user.value === "" || user.value !== again.value;
  }

  async function erase(event) {
    event.preventDefault();
    if (user.value !== again.value) return;
    const id = user.value;
    form.reset();
    await actions.page.erase(id);
  }

  function draw(next) {
    if (next === now) return;
    now = next;
    compare();
    fill(problem, whyRefused(now.problem, actions), now.busy && t("privacy.erasure.busy"));
    set(problem, "hidden", !now.problem && !now.busy);
    if (shown !== now.receipt) fill(receipt, now.receipt && receiptView(now.receipt));
    shown = now.receipt;
  }

  return { node, draw };
}
