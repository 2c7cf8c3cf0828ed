/**
 * Answers as formatted text. The parser of Markdown is fetched with the first answer, after the first paint. Until it
 * is there, and for what it cannot read, a text stands in paragraphs.
 */

import { fill, h } from "./dom.js";
import { marked } from "./views/marks.js";

const waiting = new Map(); // by element: the text that it shows unformatted so far
let markdown = null;
let fetching = null;

/** Show a text in an element. */
export function writeProse(element, text) {
  waiting.delete(element);
  if (markdown) return fill(element, markdown(text) ?? paragraphs(text));
  waiting.set(element, text);
  fetching ??= fetchMarkdown();
  return fill(element, paragraphs(text));
}

async function fetchMarkdown() {
  try {
    markdown = (await import("./markdown.js")).markdown;
    for (const [element, text] of waiting) writeProse(element, text);
  } catch {
    fetching = null; // the next text tries again
  }
}

function paragraphs(text) {
  return text
    .split(/\n\s*\n/)
    .filter((each) => each.trim())
    .map((each) => h("p", { class: "plain", dir: "auto" }, marked(each)));
}
