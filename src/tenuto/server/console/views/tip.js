/** A few words about whatever the pointer or the keyboard is at, where it says `data-tip`. */

import { h, set, write } from "../dom.js";

const GAP = 6;
const MARGIN = 8;

/** One for the whole page, so that no part's edge cuts it off. Screen readers have the same words from the element. */
export function tipView(page) {
  const node = h("div", { class: "tip", "aria-hidden": "true", hidden: true });

  function show({ target }) {
    const about = target.closest?.("[data-tip]");
    if (!about) return hide();
    write(node, about.dataset.tip);
    set(node, "hidden", false);
    return stand(about.getBoundingClientRect());
  }

  function stand({ left, top, bottom }) {
    const room = innerWidth - node.offsetWidth - MARGIN;
    const below = bottom + GAP;
    const fits = below + node.offsetHeight + MARGIN < innerHeight;
    node.style.left = `${Math.max(MARGIN, Math.min(left, room))}px`;
    node.style.top = `${fits ? below : top - GAP - node.offsetHeight}px`;
  }

  function hide() {
    set(node, "hidden", true);
  }

  page.addEventListener("mouseover", show);
  page.addEventListener("focusin", show);
  page.addEventListener("focusout", hide);
  page.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  page.addEventListener("scroll", hide, { capture: true, passive: true });
  return { node };
}
