/**
 * A long list of rows of one height, of which only those on screen are elements.
 *
 * `make(item)` gives a row as in `keyed.js`; its `draw` gets the item and its place in the list. `near()` is called when
 * the end of the list comes close to the screen. A row that has the focus stays, wherever the list is scrolled to.
 */

import { h, set } from "../dom.js";
import { keyed } from "../keyed.js";

export const ROW = 48;
const BEYOND = 8; // rows above and below the screen
const CLOSE = 20; // rows before the end

export function windowList(scroller, make, near) {
  const node = h("div", { class: "window", role: "rowgroup" });
  const rows = keyed(node, make);
  let items = [];
  let beside = [];
  let waiting = false;

  function draw(now, ...more) {
    items = now;
    beside = more;
    show();
  }

  function show() {
    waiting = false;
    const top = (scroller.scrollTop - node.offsetTop) / ROW;
    const first = Math.max(0, Math.floor(top) - BEYOND);
    const last = Math.min(items.length, Math.ceil(top + scroller.clientHeight / ROW) + BEYOND);
    node.style.height = `${items.length * ROW}px`;
    rows(shown(first, last), ...beside);
    if (node.isConnected && last + CLOSE > items.length) near();
  }

  function shown(first, last) {
    const focused = node.contains(document.activeElement) && document.activeElement.closest("[role=row]");
    const held = focused ? items.findIndex((item) => item.id === focused.dataset.key) : -1;
    const places = Array.from({ length: Math.max(0, last - first) }, (_, number) => first + number);
    if (held >= 0 && held < first) places.unshift(held);
    if (held >= last) places.push(held);
    return places.map((place) => ({ key: items[place].id, item: items[place], place }));
  }

  function later() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(show);
  }

  scroller.addEventListener("scroll", later, { passive: true });
  new ResizeObserver(later).observe(scroller);
  return { node, draw };
}

/** Put a row where it belongs, and say which one it is. */
export function placeRow(node, key, place) {
  node.style.transform = `translateY(${place * ROW}px)`;
  set(node, "data-key", key);
  set(node, "aria-rowindex", String(place + 2)); // the first row is that of the headings
}
