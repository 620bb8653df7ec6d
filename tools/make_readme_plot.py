#!/usr/bin/env python3
"""Draws docs/peers.svg, the picture of the README, from bench/results/*.json. Needs only Python's standard library.

  tools/make_readme_plot.py            write the picture
  tools/make_readme_plot.py --check    exit with 1 if the picture is not what this script draws

The picture has its own background, and its colors follow the light or dark mode of the reader. It is therefore readable
on every page.
"""
import argparse
import sys
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_results import ROOT, short, strongest_peers

PICTURE = ROOT / "docs" / "peers.svg"
WIDTH, MARGIN, ROW, BAR, TOP = 900, 24, 50, 14, 92  # pixels
LABEL_WIDTH, PANEL_WIDTH, GAP = 256, 280, 36
STYLE = """\
  .ground { fill: #ffffff; stroke: #d0d7de } .title { fill: #1f2328; font-weight: 600; font-size: 15px }
  text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .faint { fill: #59636e } .strong { font-weight: 600 } .axis { stroke: #d0d7de }
  .ours { fill: #0969da } .peer { fill: #b1bac4 }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #0d1117; stroke: #30363d } .title, text { fill: #e6edf3 } .faint { fill: #9198a1 }
    .axis { stroke: #30363d } .ours { fill: #4493f8 } .peer { fill: #57606a }
  }
"""


def text(x, y, words, style="", anchor="start"):
    style = f' class="{style}"' if style else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'


def bar(x, y, length, style):
    return f'<rect x="{x:.0f}" y="{y:.0f}" width="{max(length, 1):.1f}" height="{BAR}" rx="2" class="{style}"/>'


def row(y, comparison, speed_scale):
    """Returns the SVG elements of one comparison: its texts, two bars for speed and two bars for memory.

    A bar has the length `value / the peer's value * unit`, so the peer's bars have the same length in all rows. For
    speed, the unit is `speed_scale`, in pixels.
    """
    c, speed_x, memory_x = comparison, MARGIN + LABEL_WIDTH, MARGIN + LABEL_WIDTH + PANEL_WIDTH + GAP
    lower, ours, theirs = y + BAR + 2, y + BAR - 3, y + 2 * BAR - 1
    speed = c.speed_ratio * speed_scale
    memory_unit = PANEL_WIDTH - 92
    return [
        text(MARGIN, ours, c.job, "strong"), text(MARGIN, theirs, f"{c.hardware}, against {c.peer}", "faint"),
        bar(speed_x, y, speed, "ours"), text(speed_x + speed + 6, ours, f"{c.speed_ratio:.2f}×", "strong"),
        bar(speed_x, lower, speed_scale, "peer"),
        text(speed_x + speed_scale + 6, theirs, f"{short(c.speed[0])} against {short(c.speed[1])} tokens/s", "faint"),
        bar(memory_x, y, c.memory_ratio * memory_unit, "ours"),
        text(memory_x + c.memory_ratio * memory_unit + 6, ours, f"{short(c.memory[0])} GiB", "strong"),
        bar(memory_x, lower, memory_unit, "peer"),
        text(memory_x + memory_unit + 6, theirs, f"{short(c.memory[1])} GiB", "faint"),
    ]


def draw():
    shown = strongest_peers()
    height = TOP + ROW * len(shown) + 34
    speed_x, memory_x = MARGIN + LABEL_WIDTH, MARGIN + LABEL_WIDTH + PANEL_WIDTH + GAP
    scale = (PANEL_WIDTH - 40) / max(c.speed_ratio for c in shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'role="img" aria-label="Speed and memory of Tessera and its peers">',
        f"<style>\n{STYLE}</style>",
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="ground"/>',
        text(MARGIN, 34, "Full fine-tuning in bf16: Tessera and its strongest peers", "title"),
        f'<rect x="{MARGIN}" y="48" width="12" height="12" rx="2" class="ours"/>', text(MARGIN + 18, 58, "Tessera"),
        f'<rect x="{MARGIN + 78}" y="48" width="12" height="12" rx="2" class="peer"/>',
        text(MARGIN + 96, 58, "the peer"),
        text(speed_x, 58, "speed, the peer = 1: longer is better", "strong"),
        text(memory_x, 58, "peak memory per rank: shorter is better", "strong"),
    ]
    for x in (speed_x, memory_x):
        parts.append(f'<path d="M{x - 1} {TOP - 8}v{ROW * len(shown)}" class="axis"/>')
    for i, comparison in enumerate(shown):
        parts += row(TOP + ROW * i, comparison, scale)
    source = "Speeds are per GPU (NVIDIA H200). Settings, machines, commits and commands: docs/performance.md."
    parts.append(text(MARGIN, height - 18, source, "faint"))
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        PICTURE.write_text(draw(), encoding="utf-8")
    elif PICTURE.read_text(encoding="utf-8") != draw():
        sys.exit("error: docs/peers.svg differs from bench/results/*.json. Run tools/make_readme_plot.py")


if __name__ == "__main__":
    main()
