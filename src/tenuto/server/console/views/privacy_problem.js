/** Why something about private data was not done. Users who do not answer for the tenant are told how to get in. */

import { sentence } from "../problem.js";
import { refusal } from "./refusal.js";

export function whyRefused(problem, actions) {
  return problem?.status === 403 ? refusal(problem, "privacy.forbidden", actions) : problem && sentence(problem);
}
