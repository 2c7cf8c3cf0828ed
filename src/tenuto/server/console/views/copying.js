/** A button that copies a text, and says that it did. */

import { t } from "../i18n.js";
import { iconButton } from "./buttons.js";

const SAID_FOR = 2000;

/** `read` gives the text when the button is pressed. */
export function copyButton(read, name = t("copy")) {
  const button = iconButton("copy", name, async () => {
    const done = await copy(read());
    button.dataset.done = String(done);
    button.setAttribute("aria-label", t(done ? "copied" : "copy.failed"));
    button.title = t(done ? "copied" : "copy.failed");
    setTimeout(() => {
      delete button.dataset.done;
      button.setAttribute("aria-label", name);
      button.title = name;
    }, SAID_FOR);
  });
  return button;
}

async function copy(text) {
  // Browsers give the clipboard only to pages from this machine or over https.
  if (!navigator.clipboard) return copyBySelection(text);
  return navigator.clipboard.writeText(text).then(
    () => true,
    () => copyBySelection(text),
  );
}

function copyBySelection(text) {
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "unseen";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}
