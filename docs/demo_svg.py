"""Makes docs/demo.svg, the README's picture: runs the demo and draws its terminal.

The text scrolls through a window as high as a terminal; where pictures do not move, its end stays.

python docs/demo_svg.py
"""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("demo.svg")
COLOURS = {"31": "#f7768e", "32": "#9ece6a", "33": "#e0af68", "34": "#7aa2f7", "36": "#7dcfff"}
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
LINE, CHARACTER, MARGIN, COLUMNS, ROWS = 18, 7.8, 16, 112, 30
FIRST_S, STEP_S, LAST_S = 3.0, 0.45, 6.0  # how long the first screen, a line and the last one stay


def run_demo() -> list[str]:
    """The demo's output, line by line, with colour codes."""
    env = {**os.environ, "FORCE_COLOR": "1"}
    env.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "fleet_agentpack", "demo"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    shown = done.stdout.replace(f"{sys.executable} -m fleet_agentpack", "fleet-agentpack")
    return ["$ fleet-agentpack demo", *shown.splitlines()]


def spans(line: str) -> str:
    """One line as coloured text runs."""
    found, styles = [], ""
    for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
        if piece.startswith("\x1b"):
            styles = style(piece[2:-1].split(";"))
        elif piece:
            found.append(f"<tspan{styles}>{html.escape(piece)}</tspan>")
    return "".join(found)


def style(codes: list[str]) -> str:
    """The attributes for a set of colour codes."""
    attributes = [f' fill="{COLOURS[code]}"' for code in codes if code in COLOURS]
    attributes += [' font-weight="bold"'] if "1" in codes else []
    attributes += [' fill-opacity="0.6"'] if "2" in codes else []
    return "".join(attributes)


def scrolling(steps: int) -> str:
    """The style that moves the text up, a line at a time, and holds the last screen."""
    total = FIRST_S + steps * STEP_S + LAST_S
    frames = "".join(
        f"{100 * (FIRST_S + step * STEP_S) / total:.2f}%"
        f"{{transform:translateY({(steps - step - 1) * LINE}px)}}"
        for step in range(steps)
    )
    return (
        f"@keyframes scroll{{0%{{transform:translateY({steps * LINE}px)}}{frames}}}"
        f"#text{{animation:scroll {total:.1f}s step-end infinite}}"
        "@media (prefers-reduced-motion:reduce){#text{animation:none}}"
    )


def draw(lines: list[str]) -> str:
    """The whole picture."""
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROWS * LINE + 2 * MARGIN
    above = max(0, len(lines) - ROWS)
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{LINE * (number - above + 1) - 5}">{spans(line)}</text>'
        for number, line in enumerate(lines)
        if line.strip()
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">\n'
        "<title>fleet-agentpack demo in a terminal</title>\n"
        f"<style>{scrolling(above)}</style>\n"
        '<rect width="100%" height="100%" rx="8" fill="#1a1b26"/>\n'
        f'<svg y="{MARGIN}" width="{width}" height="{ROWS * LINE}">\n'
        f'<g id="text" font-family="{FONT}" font-size="13" fill="#c0caf5" xml:space="preserve">\n'
        f"{rows}\n</g>\n</svg>\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(draw(run_demo()), encoding="utf-8")
