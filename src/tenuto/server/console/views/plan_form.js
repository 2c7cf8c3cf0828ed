/** Runs a plan that is pasted or read from a file. What is wrong with it is said below it, and shown in it. */

import { fill, h, set } from "../dom.js";
import { t } from "../i18n.js";
import { Problem, sentence } from "../problem.js";
import { addressOfTask } from "../route.js";
import { textButton } from "./buttons.js";

/** What a plan looks like. */
export const EXAMPLE = {
  type: "letter",
  goal: "What can you do?",
  plan: {
    steps: [
      { id: "draft", agent: "assistant:general" },
      { id: "approval", human_input: "Send this?", after: ["draft"] },
    ],
  },
};

export function planForm(actions) {
  const { draft } = actions.page.list;
  const type = h("input", { required: true, autocomplete: "off", maxlength: 100 });
  const goal = h("input", { autocomplete: "off", dir: "auto" });
  const plan = h("textarea", {
    rows: 12,
    spellcheck: "false",
    dir: "ltr",
    required: true,
    "aria-describedby": "plan-help plan-wrong",
  });
  const wrong = h("p", { id: "plan-wrong", class: "notice grave", role: "alert" });
  const file = h("input", {
    type: "file",
    accept: ".json,application/json",
    class: "unseen",
    "aria-label": t("plan.file"),
    on: { change: read },
  });
  const run = h("button", { class: "text-button strong" }, t("plan.run"));
  const node = h(
    "form",
    { class: "plan-form", "aria-label": t("plan.title"), on: { submit } },
    h("div", { class: "plan-about" }, h("label", {}, t("plan.type"), type), h("label", {}, t("plan.goal"), goal)),
    h(
      "p",
      { class: "choices sources" },
      h("label", { class: "text-button" }, t("plan.file"), file),
      textButton(t("plan.example"), () => write(JSON.stringify(EXAMPLE, null, 2))),
    ),
    h("label", {}, t("plan.plan"), plan),
    h("p", { id: "plan-help", class: "hint" }, t("plan.help")),
    wrong,
    h(
      "p",
      { class: "choices" },
      textButton(t("cancel"), () => actions.page.list.fold()),
      run,
    ),
  );
  [type.value, goal.value, plan.value] = [draft.type, draft.goal, draft.text];
  node.addEventListener("input", () => {
    Object.assign(draft, { type: type.value, goal: goal.value, text: plan.value });
    fill(wrong);
    set(plan, "aria-invalid", null);
  });
  plan.addEventListener("input", about);

  /** A plan may bring its own type and goal. */
  function about() {
    let given;
    try {
      given = JSON.parse(plan.value);
    } catch {
      return;
    }
    if (typeof given?.type === "string") type.value = draft.type = given.type;
    if (typeof given?.goal === "string") goal.value = draft.goal = given.goal;
  }

  function write(text) {
    plan.value = text;
    plan.dispatchEvent(new Event("input", { bubbles: true }));
    plan.focus();
    plan.setSelectionRange(0, 0);
  }

  async function read() {
    const [chosen] = file.files;
    file.value = "";
    if (chosen) write(await chosen.text());
  }

  async function submit(event) {
    event.preventDefault();
    if (run.disabled) return;
    let given;
    try {
      given = JSON.parse(plan.value);
    } catch (error) {
      return refuse(t("plan.no_json", { why: error.message }), syntaxPlace(error.message, plan.value));
    }
    const { type: _, goal: __, plan: inner, ...steps } = Object(given);
    run.disabled = true;
    const { task, problem } = await actions.page.list.run({
      type: type.value,
      goal: goal.value,
      plan: inner ?? (Array.isArray(given) ? given : steps),
    });
    run.disabled = false;
    if (problem) return refuse(said(problem), stepPlace(problem, plan.value));
    if (task) location.hash = addressOfTask(task.id);
    return undefined;
  }

  /** Say what is wrong, and show where, if that is known. */
  function refuse(text, place) {
    fill(wrong, text);
    set(plan, "aria-invalid", "true");
    plan.focus();
    if (!place) return;
    plan.setSelectionRange(...place);
    const line = plan.value.slice(0, place[0]).split("\n").length;
    plan.scrollTop = (line - 3) * parseFloat(getComputedStyle(plan).lineHeight);
  }

  return { node, focus: () => plan.focus() };
}

function said(error) {
  const problem = Problem.from(error);
  return problem.status === 400 ? t("plan.refused", { why: problem.detail }) : sentence(problem);
}

/** Where JSON breaks off, as browsers tell it: by a position, or by a line and a column. */
function syntaxPlace(message, text) {
  const [, position] = /position (\d+)/.exec(message) ?? [];
  const [, line, column] = /line (\d+) column (\d+)/.exec(message) ?? [];
  if (!position && !line) return [text.length, text.length];
  const at = position
    ? Number(position)
    : text
        .split("\n")
        .slice(0, line - 1)
        .join("\n").length + Number(column);
  return [Math.max(0, at - 1), at + 1];
}

/** The id of the step at fault, which the server names, or gives the number of. */
function stepPlace({ detail, step }, text) {
  const [, number] = /`\$\.steps\[(\d+)\]/.exec(detail) ?? [];
  const ids = [...text.matchAll(/"id"\s*:\s*"([^"]*)"/g)];
  const found = number ? ids[number] : ids.findLast(([, id]) => id === step);
  return found && [found.index, found.index + found[0].length];
}
