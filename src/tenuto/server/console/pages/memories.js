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
  unread: false, // whether what was said last is not read for memories yet
  loading: true,
  problem: null, // why the list could not be brought
  refused: null, // why a change was not made
  person: null, // the users who are one person with this one
  code: null, // the code that is shown for another door
  unlinkable: null, // why a user was not linked or parted
};
export const makeActions = memoryActions;
export const view = memoriesView;
