/** The AI SDK's chat with the state of a page, but without React: what `useChat` of `@ai-sdk/react` keeps in a component. */

import { AbstractChat } from "ai";

class PageState {
  status = "ready";
  error = undefined;
  changed = () => {};
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
    this.changed();
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.with(index, structuredClone(message));
    this.changed();
  };
  snapshot = structuredClone;
}

export class PageChat extends AbstractChat {
  constructor({ messages = [], ...options }) {
    const state = new PageState(messages);
    super({ ...options, state });
    this.pageState = state;
  }
  /** When the last message says so. */
  until = (text) =>
    new Promise((resolve) => {
      const look = () => textOf(this.messages.at(-1)) === text && resolve();
      this.pageState.changed = look;
      look();
    });
}

export function useChat({ resume, ...options }) {
  const chat = new PageChat(options);
  if (resume) chat.resumeStream();
  return chat;
}

export const textOf = (message) =>
  message?.parts.filter((part) => part.type === "text").map((part) => part.text).join("");
