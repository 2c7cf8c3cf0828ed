/** A field in place of a title. Enter and leaving it save, Escape does not. */

import { h } from "../dom.js";
import { t } from "../i18n.js";

/** `close(byKey)` is called when the field has to go, then `save(title)` if the title is another one. */
export function titleField(title, { close, save }) {
  const input = h("input", { value: title, maxlength: 200, "aria-label": t("sessions.name") });
  let open = true;

  function done(saved, byKey) {
    if (!open) return;
    open = false;
    const now = input.value.trim();
    close(byKey);
    if (saved && now && now !== title) save(now);
  }

  input.addEventListener("blur", () => done(true, false));
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key !== "Escape" && event.key !== "Enter") return;
    // The button that gets the focus shall not be pressed by the same key, nor the page hear it.
    event.preventDefault();
    event.stopPropagation();
    done(event.key === "Enter", true);
  });
  return input;
}
