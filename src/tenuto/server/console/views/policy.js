/** What becomes of private data here, place by place, and what stands behind it. */

import { fill, h } from "../dom.js";
import { has, t } from "../i18n.js";
import { called } from "../marks.js";

export function policyView() {
  const node = h("div", { class: "policy-sheet" });
  let shown;

  function draw({ privacy }) {
    if (privacy === shown) return;
    shown = privacy;
    fill(node, privacy ? sheet(privacy) : t("privacy.none"));
  }

  return { node, draw };
}

function sheet(privacy) {
  return [h("p", { class: "hint" }, t("privacy.lead")), sinks(privacy.modes), looked(privacy), facts(privacy)];
}

function sinks(modes) {
  const head = ["where", "what"].map((name) => h("th", { scope: "col" }, t(`privacy.${name}`)));
  const rows = Object.entries(modes).map(([sink, mode]) =>
    h(
      "tr",
      { data: { sink, mode } },
      h("th", { scope: "row" }, worded("sink", sink)),
      h("td", {}, h("span", { class: "mode" }, how(sink, mode))),
    ),
  );
  return h("table", { class: "sinks" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
}

/** A message or a question is refused as a whole; elsewhere the text is kept away. */
function how(sink, mode) {
  return has(`mode.${mode}.${sink}`) ? t(`mode.${mode}.${sink}`) : worded("mode", mode);
}

export function worded(family, name) {
  return has(`${family}.${name}`) ? t(`${family}.${name}`) : name;
}

function looked({ types = [], patterns = [] }) {
  const names = [...new Set([...types, ...patterns].map(called))];
  return h(
    "section",
    {},
    h("h3", {}, t("privacy.types")),
    h(
      "ul",
      { class: "types" },
      names.map((name) => h("li", { class: "chip" }, name)),
    ),
  );
}

function facts({ vault, unvaulted = [], detector, degraded, encryption }) {
  const rows = [
    ["vault", yes("vault", vault)],
    vault && unvaulted.length > 0 && ["unvaulted", unvaulted.map(called).join(t("mark.comma"))],
    ["detector", detector && degraded ? t("privacy.detector.away") : yes("detector", detector), detector && degraded],
    ["encryption", yes("encryption", encryption)],
  ];
  return h("dl", {}, rows.filter(Boolean).map(fact));
}

function fact([name, value, wrong = false]) {
  return [
    h("dt", {}, t(`privacy.${name}`)),
    h("dd", { class: wrong ? "grave" : null, data: { fact: name } }, value),
  ];
}

function yes(what, holds) {
  return t(`privacy.${what}.${holds ? "yes" : "no"}`);
}
