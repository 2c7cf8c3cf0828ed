/** The list of tasks, and one of them where the address names it. */

import { NO_TASK, taskActions } from "../actions/task.js";
import { taskListActions } from "../actions/tasks.js";
import { fill, h } from "../dom.js";
import { partOf } from "../state.js";
import { taskView } from "../views/task.js";
import { tasksView } from "../views/tasks.js";
import { en, zh } from "../words/tasks.js";

export const words = { en, zh };
export const initial = {
  list: { items: [], shown: 50, more: false, writing: false, loading: true, problem: null }, // `writing`: a plan
  task: NO_TASK,
};

export function makeActions(store, own) {
  const list = taskListActions(store, partOf(own, "list"));
  const task = taskActions(store, partOf(own, "task"));
  return {
    list,
    task,
    open(id) {
      if (id === null) task.close();
      return id === null ? list.refresh() : task.open(id);
    },
    close: task.close,
    leave() {
      list.leave();
      task.leave();
    },
  };
}

export function view(actions, ask) {
  const list = tasksView(actions);
  const task = taskView(actions, ask);
  const node = h("div", { class: "page" });
  let shown = list;

  function draw(state, now) {
    shown = state.id === null ? list : task;
    list.draw(state, now.list);
    task.draw(state, now.task);
    if (node.firstChild !== shown.node) fill(node, shown.node);
  }

  const title = (state, now) => (state.id === null ? list.title() : task.title(now.task));
  return { node, draw, title, focus: () => shown.focus() };
}
