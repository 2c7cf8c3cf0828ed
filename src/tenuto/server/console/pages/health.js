/** How the server is. */

import { healthActions } from "../actions/health.js";
import { healthView } from "../views/health.js";
import { en, zh } from "../words/health.js";

export const words = { en, zh };
export const initial = {
  status: null, // the server's view of itself
  before: null, // the one that was read before it, which rates are counted from
  loading: true,
  problem: null,
};
export const makeActions = healthActions;
export const view = healthView;
