/** The signed receipt of an erasure, and a button that saves it as it is. */

import { h } from "../dom.js";
import { instant, number } from "../format.js";
import { t } from "../i18n.js";
import { save } from "../saving.js";
import { textButton } from "./buttons.js";
import { worded } from "./policy.js";

export function receiptView(receipt) {
  const facts = [
    ["id", receipt.id],
    ["tenant", receipt.tenant],
    ["sites", receipt.sites.map((site) => site || "–").join(", ")],
    ["digest", receipt.user_digest, true],
    ["erased", instant(receipt.erased_at)],
    ["counts", countsOf(receipt.counts)],
    ["bytes", [worded("privacy.bytes", receipt.compaction), receipt.remaining_reason].filter(Boolean).join(": ")],
    ["limits", receipt.limits],
    ["key", receipt.public_key, true],
    ["signature", receipt.signature, true],
  ];
  return h(
    "div",
    { class: "receipt" },
    h("h3", {}, t("privacy.receipt")),
    h("p", {}, t("privacy.receipt.text")),
    h(
      "dl",
      {},
      facts.map(([name, value, mono]) => [
        h("dt", {}, t(`privacy.receipt.${name}`)),
        h("dd", { class: mono ? "mono" : null, data: { fact: name } }, value),
      ]),
    ),
    h("p", { class: "row" }, textButton(t("privacy.receipt.save"), () => saveReceipt(receipt))),
  );
}

/** What was removed, by kind. */
export function countsOf(counts) {
  const some = Object.entries(counts).filter(([, count]) => count > 0);
  const said = some.map(([name, count]) => `${worded("privacy.erased", name)}: ${number(count)}`);
  return said.join(", ") || t("privacy.erased.nothing");
}

function saveReceipt(receipt) {
  const file = new Blob([`${JSON.stringify(receipt, null, 2)}\n`], { type: "application/json" });
  save(file, `receipt-${receipt.id}.json`);
}
