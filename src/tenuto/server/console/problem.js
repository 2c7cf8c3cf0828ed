/** What went wrong, as the page knows it: the server's stable code, and a sentence in the reader's language. */

import { has, t } from "./i18n.js";

export class Problem extends Error {
  constructor(code, { detail = "", status = 0, reason = null, step = null } = {}) {
    super(code);
    this.code = code;
    this.detail = detail;
    this.status = status;
    this.reason = reason; // why a model did not answer
    this.step = step; // of a plan, where it is at fault
  }

  /** From a problem+json body, or whatever else came with an error status. */
  static async of(response) {
    const told = await response.json().catch(() => null);
    return Problem.told(told ?? { code: "unreadable", status: response.status });
  }

  static told({ code = "unreadable", detail = "", status = 0, reason = null, step = null }) {
    return new Problem(code, { detail, status, reason, step });
  }

  /** From the trace of a turn that ended without an answer. */
  static ofTrace({ error, error_message: detail, reason }) {
    return new Problem(error, { detail, reason });
  }

  /** From anything that was thrown. */
  static from(error) {
    if (error instanceof Problem) return error;
    // fetch reports every failure of the network as a TypeError.
    if (error instanceof TypeError) return new Problem("unreachable");
    console.error(error);
    return new Problem("page");
  }
}

export function sentence(problem) {
  if (has(`problem.${problem.code}`)) return t(`problem.${problem.code}`, { detail: problem.detail });
  if (problem.reason) return has(`reason.${problem.reason}`) ? t(`reason.${problem.reason}`) : t("reason.other");
  return t("problem.other", { detail: problem.detail || problem.code });
}
