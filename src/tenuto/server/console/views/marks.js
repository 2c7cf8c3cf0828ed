/** Marks in a text, as small labels. What one copies is the mark itself. */

import { fill, h } from "../dom.js";
import { explain, label, pieces } from "../marks.js";

/**
 * A text as nodes. The mark stays the label's text, so that it can be copied and found; what is seen is drawn by CSS,
 * and what is heard is its name. `still` labels cannot be reached by keyboard: those inside links.
 */
export function marked(text, { still = false } = {}) {
  return pieces(text).map((piece) => (typeof piece === "string" ? piece : chip(piece, still)));
}

/** A mark as a label. */
export function chip(mark, still = false) {
  const why = explain(mark);
  return h(
    "span",
    {
      class: "mark",
      role: "img",
      "aria-label": why,
      title: "", // not that of whatever it stands in, beside its own
      tabindex: still ? null : 0,
      data: { mark: mark.kind, label: label(mark), tip: why },
    },
    mark.text,
  );
}

/** Write a text with its marks where it differs; it stands as its letters run, from the left or from the right. */
export function writeMarked(element, text, manner = {}) {
  element.dir = "auto";
  if (element.textContent !== text) fill(element, marked(text, manner));
}
