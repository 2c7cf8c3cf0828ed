/** Phrases of the window that opens anything by name. */

export const en = {
  "find.title": "Open by name",
  "find.field": "Open a session, page, assistant or task …",
  "find.keys": "↑ ↓ choose, Enter opens, Escape closes",
  "find.none": "Nothing matches.",
  "find.titles": "sessions are found by their titles",
  "find.count": "{count} entry | {count} entries",
  "find.recent": "Recent sessions",
  "find.sessions": "Sessions",
  "find.pages": "Pages",
  "find.assistants": "New session with",
  "find.tasks": "Tasks",
};

export const zh = {
  "find.title": "按名称打开",
  "find.field": "打开会话、页面、助手或任务……",
  "find.keys": "↑ ↓ 选择，Enter 打开，Esc 关闭",
  "find.none": "没有匹配的内容。",
  "find.titles": "仅按标题查找会话",
  "find.count": "{count} 项",
  "find.recent": "最近的会话",
  "find.sessions": "会话",
  "find.pages": "页面",
  "find.assistants": "与助手开始新会话",
  "find.tasks": "任务",
};
