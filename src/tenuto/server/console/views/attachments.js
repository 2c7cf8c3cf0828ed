/**
 * Pictures, sounds and files that a message shows. Their bytes are fetched when they are scrolled to, with the headers
 * of every request; what may be a document of its own is only ever saved.
 */

import { fill, h, set } from "../dom.js";
import { bytes } from "../format.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { Problem, sentence } from "../problem.js";
import { save } from "../saving.js";
import { nameOf, pictureOf, playerOf, whenSeen } from "./attachment_parts.js";
import { iconButton, textButton } from "./buttons.js";
import { icon } from "./icons.js";

/** `actions.ask` asks whether one shall be deleted. */
export function attachmentsView(actions) {
  const node = h("ul", { class: "attachments", hidden: true, "aria-label": t("attachment.list") });
  const rows = keyed(node, () => attachmentView(actions));
  let shown = [];

  function draw(attachments, session) {
    if (shown[0] === attachments && shown[1] === session) return;
    shown = [attachments, session];
    set(node, "hidden", attachments.length === 0);
    rows(attachments, session);
  }

  return { node, draw };
}

function attachmentView(actions) {
  const content = h("div", { class: "content" });
  const wrong = h("p", { class: "notice", role: "alert", hidden: true });
  const about = h("span", { class: "about" });
  const keep = iconButton("download", "", saveFile);
  const remove = iconButton("bin", "", removeIt);
  const caption = h("p", { class: "caption" }, about, keep, remove);
  const node = h("li", {}, content, caption, wrong);
  let shown = null;
  let session = null;

  function draw(attachment, of) {
    const before = shown;
    [shown, session] = [attachment, of];
    const name = nameOf(shown);
    for (const [button, phrase] of [[keep, "attachment.save"], [remove, "attachment.delete"]]) {
      set(button, "aria-label", t(phrase, { name }));
      set(button, "title", t(phrase, { name }));
    }
    set(remove, "hidden", shown.id === null || session === null);
    set(keep, "hidden", shown.removed || (shown.id === null && shown.file === null));
    if (before?.removed === shown.removed) return;
    set(node, "data-type", shown.removed ? "removed" : shown.type);
    fill(about, described(shown));
    fill(content);
    fill(wrong);
    set(wrong, "hidden", true);
    if (shown.removed || (shown.id === null && shown.file === null)) return;
    if (shown.type === "file") fill(content, icon("file"));
    else if (shown.file) present();
    else whenSeen(content, present);
  }

  /** The bytes. They are fetched again to enlarge or save what is shown: kept, those of a long talk would fill the memory. */
  async function load() {
    return shown.file ?? actions.talks.attachment(session, shown.id);
  }

  async function attempt(act) {
    set(wrong, "hidden", true);
    try {
      await act();
    } catch (error) {
      // What was removed meanwhile is said to be so.
      if (!shown.removed) complain(Problem.from(error), () => attempt(act));
    }
  }

  function complain(problem, again) {
    fill(wrong, sentence(problem), " ", again && textButton(t("again"), again));
    set(wrong, "hidden", false);
  }

  function present() {
    return attempt(async () => {
      const bytesOf = await load();
      const name = nameOf(shown);
      if (shown.removed) return;
      if (shown.type === "audio") return void fill(content, playerOf(bytesOf, name));
      // What this browser cannot draw can be saved all the same.
      const picture = await pictureOf(bytesOf, name).catch(() => null);
      if (shown.removed) return;
      fill(content, picture ? enlarging(picture, name) : icon("image"));
    });
  }

  function enlarging(picture, name) {
    const attributes = { type: "button", class: "picture", title: t("attachment.enlarge", { name }) };
    return h("button", { ...attributes, on: { click: () => attempt(enlarge) } }, picture);
  }

  async function enlarge() {
    const name = nameOf(shown);
    const picture = await pictureOf(await load(), name);
    const close = iconButton("close", t("close"), () => dialog.close());
    const dialog = h(
      "dialog",
      { class: "enlarged", "aria-label": name, on: { close: () => dialog.remove(), click: closeBeside } },
      h("p", { class: "caption" }, h("span", { class: "about" }, described(shown)), close),
      picture,
    );
    document.body.append(dialog);
    dialog.showModal();
  }

  function saveFile() {
    // Of no type, so that the browser opens it nowhere.
    return attempt(async () => save(new Blob([await load()], { type: "application/octet-stream" }), nameOf(shown)));
  }

  async function removeIt() {
    const name = nameOf(shown);
    const title = t("attachment.delete", { name });
    if (!(await actions.ask({ title, text: t("attachment.delete.why"), yes: t("attachment.delete.yes") }))) return;
    const problem = await actions.talks.removeAttachment(session, shown.id);
    if (problem) complain(problem);
  }

  return { node, draw };
}

function closeBeside({ target, currentTarget }) {
  if (target === currentTarget) currentTarget.close();
}

/** Its name and size, or what else is known of it. */
function described(attachment) {
  const { type, removed, size, source } = attachment;
  if (removed) return [icon(type), " ", t(`attachment.removed.${type}`)];
  const name = h("span", { class: "name", dir: "auto" }, nameOf(attachment));
  if (source?.url) return [icon(type), " ", linked(source.url, attachment.name)];
  if (source?.file_id) return [icon(type), " ", name, " ", t("attachment.provider", { provider: source.provider ?? "" })];
  return [name, size !== null && [" ", h("span", { class: "figure" }, bytes(size))]];
}

function linked(url, name) {
  const there = URL.canParse(url) ? new URL(url) : null;
  if (!["https:", "http:"].includes(there?.protocol)) return url;
  return h("a", { href: there.href, rel: "noopener noreferrer", target: "_blank", dir: "auto" }, name || url);
}
