/** A scan of what is stored: its progress, and a report by place and kind, without values. */

import { fill, h, set, write } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { called } from "../marks.js";
import { textButton } from "./buttons.js";
import { worded } from "./policy.js";
import { whyRefused } from "./privacy_problem.js";

export function scanView(actions, ask) {
  const start = textButton(t("privacy.scan.start"), () => actions.page.scan(false));
  const stop = textButton(t("privacy.scan.stop"), () => actions.page.stop());
  const fix = textButton(t("privacy.scan.fix"), redact, { class: "text-button grave" });
  const bar = h("progress", { "aria-label": t("privacy.scan.progress") });
  const status = h("p", { class: "hint" });
  const problem = h("p", { class: "grave", role: "alert" });
  const report = h("div", { class: "wide", role: "status" });
  const lead = h("p", { class: "hint" }, t("privacy.scan.lead"));
  const buttons = h("p", { class: "row" }, start, stop, fix);
  const node = h("div", { class: "scan" }, lead, buttons, bar, status, problem, report);
  let shown = null;
  let reported = null;

  async function redact() {
    const [title, text, yes] = ["", ".text", ".yes"].map((part) => t(`privacy.scan.fix${part}`));
    if (await ask({ title, text, yes })) actions.page.scan(true);
  }

  function draw(now) {
    if (now === shown) return;
    shown = now;
    const { running, done, total } = now;
    start.disabled = running;
    set(stop, "hidden", !running);
    set(fix, "hidden", running || !now.report || now.report.violations === 0 || now.report.compaction !== null);
    set(bar, "hidden", !running);
    set(bar, "max", Math.max(total, 1));
    set(bar, "value", total ? done : null);
    write(status, running ? t("privacy.scan.state", { done: number(done), total: number(total) }) : "");
    fill(problem, whyRefused(now.problem, actions));
    set(problem, "hidden", !now.problem);
    if (reported !== now.report) fill(report, now.report && [sentenceOf(now.report), table(now.report)]);
    reported = now.report;
  }

  return { node, draw };
}

function sentenceOf(report) {
  const { sessions, memories, violations, unreadable, fixed } = report;
  const read = t("privacy.scan.read", { sessions: number(sessions), memories: number(memories) });
  const clean = violations === 0 && t("privacy.scan.clean");
  const found = report.compaction === null ? clean || counted("violations", violations) : counted("fixed", fixed);
  return h("p", {}, [read, found, unreadable > 0 && counted("unreadable", unreadable)].filter(Boolean).join(" "));
}

function counted(what, count) {
  return t(`privacy.scan.${what}`, { count, many: number(count) });
}

function table({ matches, allowed_sinks: allowed }) {
  const rows = Object.entries(matches).flatMap(([sink, names]) =>
    Object.entries(names).map(([name, count]) =>
      h(
        "tr",
        { data: { sink } },
        h("th", { scope: "row" }, worded("sink", sink)),
        h("td", {}, called(name)),
        h("td", {}, number(count)),
        h("td", { class: allowed.includes(sink) ? null : "grave" }, verdict(allowed.includes(sink))),
      ),
    ),
  );
  if (rows.length === 0) return null;
  const head = ["where", "kind", "count", "status"].map((name) => h("th", { scope: "col" }, t(`privacy.scan.${name}`)));
  return h("table", { class: "sinks report" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows));
}

function verdict(allowed) {
  return t(allowed ? "privacy.scan.allowed" : "privacy.scan.violation");
}
