/** Opens anything by its name: fetched when it is first asked for. */

import { finderView } from "./views/finder.js";
import { en, zh } from "./words/finder.js";

export const words = { en, zh };
export const view = finderView;
