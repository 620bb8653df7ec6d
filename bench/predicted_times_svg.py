#!/usr/bin/env python3
"""Draws docs/predicted_times.svg from bench/results/predicted-times.json: the predicted time of a step against the measured
one, on logarithmic scales, and lines at 10 % error.

The colours are medium tones on a transparent background, for light and dark pages.
"""
import json
import math
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PICTURE = ROOT / "bench/results/predicted-times.json", ROOT / "docs/predicted_times.svg"
GREY = "#7d8590"
COLOURS = {"one GPU": "#2f81d7", "one GPU, offload": "#e0912f", "two GPUs": "#2da06a", "CPU": "#c9569f"}
SIZE, LEFT, TOP, BOTTOM = 430, 62, 44, 42


def picture(rows):
    values = [value for row in rows for value in (row["values"]["predicted"], row["values"]["measured"])]
    low, high = math.floor(math.log10(min(values)) * 2) / 2, math.ceil(math.log10(max(values)) * 2) / 2
    place = lambda ms: (math.log10(ms) - low) / (high - low) * SIZE
    x, y = lambda ms: LEFT + place(ms), lambda ms: TOP + SIZE - place(ms)
    label = lambda ms: f"{ms:g} ms" if ms < 1000 else f"{ms / 1000:g} s"
    parts = [f'<rect x="{LEFT}" y="{TOP}" width="{SIZE}" height="{SIZE}" class="frame"/>']
    for power in range(math.ceil(low), math.floor(high) + 1):
        ms = 10 ** power
        parts.append(f'<path d="M{LEFT} {y(ms):.1f}h{SIZE}M{x(ms):.1f} {TOP}v{SIZE}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{label(ms)}</text>')
        parts.append(f'<text x="{x(ms):.1f}" y="{TOP + SIZE + 17}" text-anchor="middle">{label(ms)}</text>')
    first, last = 10 ** low, 10 ** high
    for factor in (0.9, 1, 1.1):
        ends = [(m, m * factor) for m in (max(first, first / factor), min(last, last / factor))]
        line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in ends)
        parts.append(f'<polyline points="{line}" class="{"equal" if factor == 1 else "tenth"}"/>')
    for row in rows:
        value = row["values"]
        title = f"{row['name']}: predicted {value['predicted']:g} ms, measured {value['measured']:g} ms"
        parts.append(f'<circle cx="{x(value["measured"]):.1f}" cy="{y(value["predicted"]):.1f}" r="3.2" '
                     f'fill="{COLOURS[value["kind"]]}"><title>{title}</title></circle>')
    at = LEFT
    for kind, colour in COLOURS.items():
        count = sum(row["values"]["kind"] == kind for row in rows)
        if count:
            parts.append(f'<circle cx="{at + 4}" cy="16" r="4" fill="{colour}"/><text x="{at + 13}" y="20">{kind} ({count})</text>')
            at += 34 + 7 * len(f"{kind} ({count})")
    parts.append(f'<text x="{LEFT + SIZE / 2}" y="{TOP + SIZE + 36}" text-anchor="middle">measured time of a step</text>')
    parts.append(f'<text x="14" y="{TOP + SIZE / 2}" text-anchor="middle" transform="rotate(-90 14 {TOP + SIZE / 2})">predicted</text>')
    width, height = LEFT + SIZE + 24, TOP + SIZE + BOTTOM
    style = (f"text{{font:12px sans-serif;fill:{GREY}}}.frame{{fill:none;stroke:{GREY}}}.grid{{stroke:{GREY};opacity:.25}}"
             f".equal{{fill:none;stroke:{GREY}}}.tenth{{fill:none;stroke:{GREY};stroke-dasharray:3 4}}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="Predicted and measured times of steps"><style>{style}</style>\n' + "\n".join(parts) + "\n</svg>\n")


if __name__ == "__main__":
    PICTURE.write_text(picture(json.loads(RESULTS.read_text())["rows"]))
