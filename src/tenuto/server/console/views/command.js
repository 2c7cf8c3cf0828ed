/** A command to copy, as it works for the caller of now. */

import { h } from "../dom.js";
import { me } from "../me.js";

export function commandView(text) {
  return h("pre", { class: "command", tabindex: 0 }, h("code", {}, text));
}

/** The request that curl would make. The key itself is not shown. */
export function curl(path, body = null) {
  const { key, user } = me();
  return [
    `curl ${quoted(String(new URL(path, document.baseURI)))}`,
    key && '-H "Authorization: Bearer $TENUTO_KEY"',
    user && `-H ${quoted(`X-User-ID: ${user}`)}`,
    body && "-H 'Content-Type: application/json'",
    body && `-d ${quoted(JSON.stringify(body))}`,
  ]
    .filter(Boolean)
    .join(" \\\n  ");
}

/** A text as one word of a shell. */
export function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
