/** What a search found in a message: the part around the words, in which they stand out. */

import { fill, h } from "../dom.js";
import { marked } from "./marks.js";

const SPECIAL = /[.*+?^${}()|[\]\\]/g;

/** Write what was found into an element, or nothing. */
export function writeExcerpt(element, match) {
  const found = match ? `${match.seq} ${match.words.join(" ")} ${match.excerpt}` : "";
  if (element.dataset.found === found) return;
  element.dataset.found = found;
  element.dir = "auto";
  fill(element, match ? excerpt(match) : []);
}

/** An excerpt as nodes. */
export function excerpt({ excerpt: text, words }) {
  if (words.length === 0) return marked(text, { still: true });
  const any = new RegExp(`(${words.map((word) => word.replace(SPECIAL, "\\$&")).join("|")})`);
  return text.split(any).flatMap((piece, place) => (place % 2 ? h("mark", {}, piece) : marked(piece, { still: true })));
}
