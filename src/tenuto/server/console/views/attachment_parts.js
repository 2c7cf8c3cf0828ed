/** What views of attachments share: names, pictures made of bytes, and when something is scrolled to. */

import { h } from "../dom.js";
import { t } from "../i18n.js";

export function nameOf({ name, type }) {
  return name || t(`attachment.${type}`);
}

/** A picture of these bytes, once it is drawn; the address that it needs for that is given back at once. */
export function pictureOf(blob, alt, attributes = {}) {
  const href = URL.createObjectURL(blob);
  return new Promise((resolve, reject) => {
    const picture = h("img", { ...attributes, alt, on: { load: () => end(resolve), error: () => end(reject) } });
    picture.src = href;

    function end(settle) {
      URL.revokeObjectURL(href);
      settle(picture);
    }
  });
}

const sounds = new Map(); // by address: the player that needs it

/** A player of these bytes; the addresses of players that are gone are given back. */
export function playerOf(blob, label) {
  for (const [href, player] of sounds) {
    if (player.isConnected) continue;
    URL.revokeObjectURL(href);
    sounds.delete(href);
  }
  const src = URL.createObjectURL(blob);
  const player = h("audio", { controls: true, "aria-label": label, src });
  sounds.set(src, player);
  return player;
}

const waiting = new WeakMap(); // by element: what to do when it is seen
const seen = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      waiting.get(target)();
    }
  },
  { rootMargin: "300px" },
);

/** Do something once an element is, or is about to be, on screen. */
export function whenSeen(element, act) {
  waiting.set(element, act);
  seen.observe(element);
}
