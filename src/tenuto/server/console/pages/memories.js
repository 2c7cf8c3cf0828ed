/** What is remembered of the user. */

import { memoryActions } from "../actions/memories.js";
import { memoriesView } from "../views/memories.js";
import { en, zh } from "../words/memories.js";

export const words = { en, zh };
export const initial = {
  preferences: [],
  items: [],
  cursor: null,
  kind: null,
  query: "",
  hits: null, // what a search found; nothing where none was made
  degraded: false,
  loading: true,
  problem: null, // why the list could not be brought
  refused: null, // why a change was not made
};
export const makeActions = memoryActions;
export const view = memoriesView;
