/** A list on screen that follows a list of values: what stays keeps its element, and with it focus and open parts. */

/**
 * Make a drawer for `parent`. `make(item)` gives `{ node, draw(item, ...more) }` for a new key; `draw` is called when
 * an item, or something beside it, is another one than last time.
 */
export function keyed(parent, make) {
  let known = new Map();
  return (items, ...beside) => {
    const kept = new Map();
    for (const item of items) {
      const view = known.get(item.key) ?? make(item);
      view.draw(item, ...beside);
      kept.set(item.key, view);
    }
    for (const [key, view] of known) if (!kept.has(key)) view.node.remove();
    known = kept;
    order(
      parent,
      [...kept.values()].map((view) => view.node),
    );
  };
}

function order(parent, nodes) {
  const focused = document.activeElement;
  nodes.forEach((node, place) => {
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  // Moving an element takes the focus from it.
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}
