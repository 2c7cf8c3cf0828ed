/** How far a task or a step is: a word, and a colour beside it. */

import { h, set, write } from "../dom.js";
import { has, t } from "../i18n.js";

export function statusView() {
  const node = h("span", { class: "status" });

  function draw(subject) {
    const status = statusOf(subject);
    set(node, "data-status", status);
    write(node, has(`status.${status}`) ? t(`status.${status}`) : status);
  }

  return { node, draw };
}

/** A cancelled task is stored as one that failed, and one that waits for a person as one that runs. */
export function statusOf({ status, error, steps = [] }) {
  if (error?.code === "task_cancelled") return "cancelled";
  return status === "running" && steps.some((step) => step.status === "waiting") ? "waiting" : status;
}

/** Why it failed; the server's sentence holds nothing that a user said. */
export function errorParts(error) {
  return error && [h("code", { class: "badge grave" }, error.code), error.message && ` ${error.message}`];
}
