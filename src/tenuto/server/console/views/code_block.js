/** A block of code: its language, a button that copies it, and colours once the grammar is there. */

import { fill, h } from "../dom.js";
import { copyButton } from "./copying.js";

// Longer code stays in one colour.
const MOST = 20_000;

/** `show` makes nodes of a part of the code, `plain` is what is copied. */
export function codeBlock(text, info, show, plain) {
  const language = (info ?? "").trim().split(/\s+/)[0].toLowerCase().slice(0, 20);
  const code = h("code", {}, show(text));
  if (language && text.length <= MOST) colour(code, text, language, show);
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, language), copyButton(() => plain)),
    h("pre", { tabindex: 0 }, code),
  );
}

async function colour(code, text, language, show) {
  const { highlight } = await import("../highlight.js");
  const parts = await highlight(text, language);
  if (parts) fill(code, nodes(parts, show));
}

function nodes(parts, show) {
  return parts.map((part) => {
    if (typeof part === "string") return show(part);
    return h("span", { data: { scope: part.scope.split(".")[0] } }, nodes(part.parts, show));
  });
}
