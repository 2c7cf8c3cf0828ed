/** The API keys of the tenant. */

import { keyActions } from "../actions/keys.js";
import { keysView } from "../views/keys.js";
import { en, zh } from "../words/keys.js";

export const words = { en, zh };
export const initial = {
  items: [],
  cursor: null,
  created: null, // a new key with its secret, until it is put away
  first: false, // whether it ended open mode, so that the page needs it to go on
  busy: false,
  refused: null, // why a key was not created or revoked
  loading: true,
  problem: null,
};
export const makeActions = keyActions;
export const view = keysView;
