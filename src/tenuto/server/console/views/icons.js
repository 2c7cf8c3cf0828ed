/** Small pictures, drawn as lines in the colour of the text around them. */

import { svg } from "../dom.js";

const PATHS = {
  more: "M6 12h.01M12 12h.01M18 12h.01",
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  pen: "M4 20l4.5-1L19 8.5 15.5 5 5 15.5zM13 7.5l3.5 3.5",
  bin: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7",
  again: "M19.5 12a7.5 7.5 0 1 1-2.2-5.3L19.5 9M19.5 4v5h-5",
  send: "M12 19V5M5.5 11.5L12 5l6.5 6.5",
  stop: "M7 7h10v10H7z",
  chevron: "M9 6l6 6-6 6",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4.5 20c.8-3.5 3.8-5.5 7.5-5.5s6.700 2 7.500 5.500",
  lock: "M8 11V8a4 4 0 0 1 8 0v3M6.5 11h11v8.5h-11z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  memory: "M7 4.5h10v15l-5-3.5-5 3.5z",
  tasks: "M4 7l2 2 3-4M4 16l2 2 3-4M13 7.500h7M13 16.500h7",
  table: "M5 5h14v4H5zM5 11h14M5 15h14M5 19h9",
  key: "M8 15a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM11.500 11.500H20v3.500M16.500 11.500v2.500",
  traces: "M4 6h7M8 12h9M13 18h7",
  fork: "M7 4v16M7 14c0-4 10-2 10-7M17 4v3M14.500 6.500L17 4l2.500 2.500",
  download: "M12 4v11M7 10.500l5 5 5-5M5 20h14",
  health: "M3.500 12.500h4l2.500-6 4 11 2.500-5h4",
  clip: "M19.500 11.500l-8 8a5 5 0 0 1-7-7l8.500-8.500a3.300 3.300 0 0 1 4.700 4.700l-8.500 8.500a1.700 1.700 0 0 1-2.400-2.400l7.500-7.500",
  file: "M6.500 3.500h7.500l4 4v13H6.500zM14 3.500v4h4",
  image: "M4.500 5.500h15v13h-15zM5 16l4.500-4.500 4 4 2.500-2.500 3.500 3.500M14.500 9h.01",
  audio: "M9 17.500V6l9-2v11.500M9 17.500a2.500 2.500 0 1 1-5 0 2.500 2.500 0 0 1 5 0zM18 15.500a2.500 2.500 0 1 1-5 0 2.500 2.500 0 0 1 5 0z",
  usage: "M5 20V12M12 20V5M19 20v-5",
  search: "M11 17a6 6 0 1 0 0-12 6 6 0 0 0 0 12zM15.500 15.500L20 20",
};

export function icon(name) {
  const line = svg("path", { d: PATHS[name] });
  return svg("svg", { viewBox: "0 0 24 24", class: `icon ${name}`, "aria-hidden": "true" }, line);
}
