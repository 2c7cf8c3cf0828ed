/**
 * Pictures, sounds and files of messages: files of this browser until they are sent, then parts of stored messages.
 *
 * Each is `{ key, type, name, size, mediaType, file, id, source, removed }`: `file` has the bytes where they are here,
 * `id` names the attachment of the session, and `source` is what a request names in place of bytes.
 */

import { Problem } from "./problem.js";

const TYPES = ["image", "audio", "file"];

/** A file that was chosen, dropped or pasted. */
export function attachmentOf(file, key) {
  const { name, size, type: mediaType } = file;
  return { key, type: typeOf(mediaType), name, size, mediaType, file, id: null, source: null, removed: false };
}

/** What a stored message shows, also in the outputs of tools. */
export function attachmentsIn({ parts }) {
  return mediaIn(parts).map((part, place) => shown(part, String(place)));
}

function mediaIn(parts) {
  return parts.flatMap((part) => {
    if (TYPES.includes(part.type)) return [part];
    return part.type === "tool_result" && Array.isArray(part.output) ? mediaIn(part.output) : [];
  });
}

function shown({ type, name = "", size = null, media_type: mediaType = "", removed = false, ...part }, key) {
  const { attachment: id = null, url, file_id, provider, detail } = part;
  const source = id === null ? { url, file_id, provider, detail } : { attachment: id, detail };
  return { key, type, name, size, mediaType, file: null, id, source, removed };
}

/** Pictures that are documents of their own, such as SVG, are files. */
function typeOf(mediaType) {
  if (mediaType.startsWith("audio/")) return "audio";
  return mediaType.startsWith("image/") && !mediaType.includes("svg") ? "image" : "file";
}

/** As a request brings it. */
export async function encoded({ type, name, mediaType, file, source }) {
  const known = { name: name || undefined, media_type: mediaType || undefined };
  return source === null ? { ...known, data: await base64(file) } : { ...known, type, ...source };
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(new Problem("file_unreadable", { detail: file.name }));
    reader.readAsDataURL(file);
  });
}

/** How many bytes are sent with these. */
export function bytesToSend(attachments = []) {
  return attachments.reduce((sum, { source, size }) => sum + (source === null ? size : 0), 0);
}

/** What is stored, with the bytes that are here already; the same value where it says nothing new. */
export function withStored(known, stored) {
  const same = known.length === stored.length;
  if (same && stored.every(({ id, removed }, place) => known[place].id === id && known[place].removed === removed))
    return known;
  return same ? stored.map((each, place) => ({ ...each, key: known[place].key, file: known[place].file })) : stored;
}

/** Whether it can be shown to the model once more. */
export function isThere({ removed, source }) {
  return !removed && source !== null;
}
