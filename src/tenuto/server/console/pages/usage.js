/** What the tenant's site used, and what its sessions are about. */

import { usageActions } from "../actions/usage.js";
import { usageView } from "../views/usage.js";
import { en, zh } from "../words/usage.js";

export const words = { en, zh };
export const initial = {
  days: 30,
  measure: "tokens", // or "turns", "cost"
  usage: null,
  topics: null,
  loading: true,
  problem: null,
};
export const makeActions = usageActions;
export const view = usageView;
