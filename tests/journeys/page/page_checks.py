"""What scripts in the browser find wrong with a page, and the folder of its files."""

from __future__ import annotations

from pathlib import Path

from tenuto.server import web_console

CONSOLE = Path(web_console.__file__).parent / "console"


NAMELESS = """
() => [...document.querySelectorAll("button, input, textarea, select, a")]
  .filter((one) => !one.ariaLabel && !one.textContent.trim() && !(one.labels?.length > 0))
  .map((one) => one.outerHTML)
"""


# It would copy imported styles into the page, which the page forbids; only a rule that is off by default reads them.
AXE = """
([part, rules]) => axe.run(part, { preload: false, ...rules }).then(({ violations }) => violations
  .flatMap((one) => one.nodes.map((node) => `${one.id} at ${node.target.join(" ")}: ${node.html}`)))
"""


WIDE = """
() => [...document.querySelectorAll("html, main, .scroll, .transcript")]
  .filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.className || one.tagName)
"""
