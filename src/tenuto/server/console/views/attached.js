/** What is attached to a message that is not sent yet: a small picture or its kind, name, size, and a way to take it back. */

import { h, set } from "../dom.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { nameOf, pictureOf } from "./attachment_parts.js";
import { iconButton } from "./buttons.js";
import { icon } from "./icons.js";

/** `remove(attachment)` takes one back. */
export function attachedView(remove) {
  const node = h("ul", { class: "attached", hidden: true, "aria-label": t("attachment.list") });
  const rows = keyed(node, (attachment) => rowView(attachment, remove));

  function draw(attachments) {
    set(node, "hidden", attachments.length === 0);
    rows(attachments);
  }

  return { node, draw };
}

function rowView(attachment, remove) {
  const { type, file, size } = attachment;
  const name = nameOf(attachment);
  const thumb = h("span", { class: "thumb" }, icon(type));
  // The name stands beside it.
  if (file && type === "image") pictureOf(file, "").then((picture) => thumb.replaceChildren(picture), () => {});
  const node = h(
    "li",
    {},
    thumb,
    h("span", { class: "name", dir: "auto", title: name }, name),
    size !== null && h("span", { class: "figure" }, bytes(size)),
    iconButton("close", t("attachment.remove", { name }), () => remove(attachment)),
  );
  return { node, draw() {} };
}
