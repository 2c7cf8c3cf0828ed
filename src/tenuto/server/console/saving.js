/** Hands a file to the browser, which saves it. */

import { h } from "./dom.js";

export function save(blob, name) {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  // The browser takes its time to begin with the download.
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}
