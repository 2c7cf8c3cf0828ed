/** What an assistant is called; one that is no longer there has its name alone. */

import { called } from "../i18n.js";

/** For many names: a function from a name to what is shown. */
export function assistantNames({ assistants }) {
  const titles = new Map(assistants.map((each) => [each.name, called(each.titles, each.name)]));
  return (name) => titles.get(name) ?? name ?? "";
}
