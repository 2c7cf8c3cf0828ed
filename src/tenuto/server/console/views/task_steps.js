/** The steps of a task's plan, in lanes: those of one lane wait for steps of the lanes above it, not for each other. */

import { fill, h, set, write } from "../dom.js";
import { clock, lasting } from "../format.js";
import { t } from "../i18n.js";
import { keyed } from "../keyed.js";
import { textButton } from "./buttons.js";
import { writeMarked } from "./marks.js";
import { errorParts, statusOf, statusView } from "./task_status.js";

export function stepsView(actions) {
  const list = h("ol", { class: "lanes" });
  const rows = keyed(list, () => laneView(actions));
  const node = h("section", {}, h("h2", {}, t("tasks.steps")), list);

  function draw({ id, detail, busy }) {
    set(node, "hidden", detail.steps.length === 0);
    const ended = detail.completed_at !== null;
    rows(lanes(detail.steps).map((steps, place) => ({ key: `${id} ${place}`, id, steps, ended, busy })));
  }

  return { node, draw };
}

/** Each step in the first lane that is below all it comes after. The server refuses plans with a cycle. */
function lanes(steps) {
  const byId = new Map(steps.map((step) => [step.id, step]));
  const places = new Map();
  const place = (step) => {
    if (!places.has(step.id)) {
      places.set(step.id, 0);
      places.set(step.id, Math.max(0, ...step.after.map((id) => place(byId.get(id)) + 1)));
    }
    return places.get(step.id);
  };
  return Object.values(Object.groupBy(steps, place));
}

function laneView(actions) {
  const list = h("ul", { class: "lane" });
  const rows = keyed(list, () => stepView(actions));

  function draw({ id, steps, ended, busy }) {
    rows(steps.map((step) => ({ key: `${id} ${step.id}`, step, ended, busy })));
  }

  return { node: h("li", {}, list), draw };
}

function stepView(actions) {
  const name = h("b");
  const status = statusView();
  const facts = h("p", { class: "facts" });
  const after = h("p", { class: "facts" });
  const question = h("p", { class: "question" });
  const why = h("p", { class: "why" });
  const form = answerForm(actions);
  const again = textButton(t("tasks.resume.here"), resume, { class: "quiet" });
  const head = h("p", { class: "step-head" }, name, status.node);
  const node = h("li", { class: "step", tabindex: -1 }, head, facts, after, question, why, form.node, again);
  let shown = null;

  function resume() {
    node.focus();
    return actions.page.task.resume(shown.id, t("tasks.resumed"));
  }

  function draw({ step, ended, busy }) {
    shown = step;
    set(node, "data-step", step.id);
    set(node, "data-status", statusOf(step));
    write(name, step.id);
    status.draw(step);
    write(facts, told(step));
    write(after, step.after.length > 0 ? t("tasks.after", { steps: step.after.join(t("mark.comma")) }) : "");
    writeMarked(question, step.human_input ?? "");
    fill(why, errorParts(step.error));
    form.draw(step, busy);
    set(again, "hidden", !ended);
    set(again, "aria-label", t("tasks.resume.from", { step: step.id }));
    again.disabled = busy;
  }

  return { node, draw };
}

/** Who works on it, how often it was tried, how long it took. */
function told({ agent, attempts, required, started_at: from, ended_at: to }) {
  return [
    agent ?? t("tasks.person"),
    attempts > 1 && t("tasks.attempts", { count: attempts }),
    from && (to ? lasting(new Date(to) - new Date(from)) : t("tasks.since", { time: clock(from) })),
    !required && t("tasks.optional"),
  ]
    .filter(Boolean)
    .join(" · ");
}

/** What a step asks a person. It stays while the task changes around it, with what is half written. */
function answerForm(actions) {
  const field = h("textarea", { rows: 2, maxlength: 10000, required: true, placeholder: t("tasks.answer.text") });
  const send = h("button", { class: "text-button strong" }, t("tasks.answer"));
  const node = h("form", { hidden: true, on: { submit } }, field, send);
  let shown = null;

  field.addEventListener("keydown", (event) => {
    if (event.isComposing || event.keyCode === 229 || event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    node.requestSubmit();
  });

  async function submit(event) {
    event.preventDefault();
    const text = field.value.trim();
    if (send.disabled || !text) return;
    if (!(await actions.page.task.answer(shown, valueOf(text), t("tasks.answered")))) return;
    field.value = "";
    node.closest(".step").focus();
  }

  function draw(step, busy) {
    shown = step.id;
    set(node, "hidden", step.status !== "waiting");
    set(field, "aria-label", t("tasks.answer.to", { step: step.id }));
    send.disabled = busy;
  }

  return { node, draw };
}

/** JSON, or else a text, as in the terminal: conditions of a plan compare numbers and truths as well. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
