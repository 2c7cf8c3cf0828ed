/** Questions that lie over the page: is it to be deleted, and who is asking. */

import { fill, h } from "../dom.js";
import { t } from "../i18n.js";
import { me } from "../me.js";
import { textButton } from "./buttons.js";

/** `ask({ title, text, yes })` resolves to whether the answer was yes. */
export function confirmDialog() {
  const node = h("dialog", { "aria-labelledby": "confirm-title" });
  let answered = () => {};
  node.addEventListener("close", () => answered(node.returnValue === "yes"));

  function ask({ title, text, yes }) {
    node.returnValue = "";
    const row = h(
      "p",
      { class: "choices" },
      textButton(t("cancel"), () => node.close("no"), { autofocus: true }),
      textButton(yes, () => node.close("yes"), { class: "text-button grave", data: { answer: "yes" } }),
    );
    fill(node, h("h2", { id: "confirm-title" }, title), h("p", {}, text), row);
    node.showModal();
    return new Promise((resolve) => (answered = resolve));
  }

  return { node, ask };
}

/** A key where one is needed, and the user whose conversations these are. */
export function meDialog(actions) {
  const title = h("h2", { id: "me-title" });
  const why = h("p");
  const [keyLabel, userLabel] = [h("span"), h("span")];
  const key = h("input", { name: "key", type: "password", autocomplete: "off", spellcheck: "false" });
  const user = h("input", { name: "user", autocomplete: "off", spellcheck: "false" });
  const form = h(
    "form",
    { on: { submit: save } },
    title,
    why,
    h("label", {}, keyLabel, key),
    h("label", {}, userLabel, user),
    h(
      "p",
      { class: "choices" },
      textButton(t("cancel"), () => node.close()),
      h("button", { class: "text-button strong" }, t("save")),
    ),
  );
  const node = h("dialog", { "aria-labelledby": "me-title", tabindex: "-1", on: { close: () => actions.house.want(false) } }, form);

  function save(event) {
    event.preventDefault();
    node.close();
    actions.identify({ key: key.value.trim(), user: user.value.trim() });
  }

  function draw(state) {
    if (!state.wanted || node.open) return;
    const refused = state.wanted === "refused";
    const open = !refused && (state.house?.auth.startsWith("open") ?? false);
    // Without keys a user is all that can be named.
    title.textContent = t(open ? "me.name" : "me.title");
    keyLabel.textContent = t(open ? "me.key.optional" : "me.key");
    userLabel.textContent = t(open ? "me.user" : "me.user.optional");
    why.textContent = t(refused ? "me.refused" : open ? "me.open" : "me.wanted");
    ({ key: key.value, user: user.value } = me());
    // Who is typing when a request is refused would type the rest into the key, and send it by Enter.
    const typing = state.wanted !== "asked" && Boolean(document.activeElement?.value);
    node.showModal();
    (typing ? node : open ? user : key).focus();
  }

  return { node, draw };
}
