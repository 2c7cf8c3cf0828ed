/** What went wrong, as the page knows it: the server's stable code, and a sentence in the reader's language. */

import { has, t } from "./i18n.js";

export class Problem extends Error {
  constructor(code, { detail = "", status = 0, step = null } = {}) {
    super(code);
    this.code = code;
    this.detail = detail;
    this.status = status;
    this.step = step; // of a plan, where it is at fault
  }

  /** From a problem+json body, or whatever else came with an error status. */
  static async of(response) {
    const told = await response.json().catch(() => null);
    return Problem.told(told ?? { code: "unreadable", status: response.status });
  }

  static told({ code = "unreadable", detail = "", status = 0, step = null }) {
    return new Problem(code, { detail, status, step });
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
  if (has(`problem.${problem.code}`)) return t(`problem.${problem.code}`);
  return t("problem.other", { detail: problem.detail || problem.code });
}
