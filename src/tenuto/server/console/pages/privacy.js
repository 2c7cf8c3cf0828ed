/** Private data: the policy, what a scan finds, erasures and their receipts, the audit. */

import { privacyActions } from "../actions/privacy.js";
import { privacyView } from "../views/privacy.js";
import { en, zh } from "../words/privacy.js";

export const words = { en, zh };
export const initial = {
  scan: { running: false, done: 0, total: 0, report: null, problem: null },
  erasure: { busy: false, receipt: null, problem: null },
  check: { result: null, problem: null }, // of a receipt
  audit: { entries: [], loading: true, problem: null },
};
export const makeActions = privacyActions;
export const view = privacyView;
