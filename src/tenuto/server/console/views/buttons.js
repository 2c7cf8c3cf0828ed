/** Buttons: a picture with a name for those who do not see it, or a word. */

import { h } from "../dom.js";
import { icon } from "./icons.js";

export function iconButton(picture, name, act, attributes = {}) {
  const { class: classes = "", ...rest } = attributes;
  return h(
    "button",
    { type: "button", class: `icon-button ${classes}`, "aria-label": name, title: name, on: { click: act }, ...rest },
    icon(picture),
  );
}

export function textButton(text, act, attributes = {}) {
  return h("button", { type: "button", class: "text-button", on: { click: act }, ...attributes }, text);
}
