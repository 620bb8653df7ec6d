"""Draws the results of bench/loss_curves.py. One panel per precision shows the losses of Tessera and of transformers.
One panel below them shows the differences between these two losses for all precisions.

The colours are medium tones on a transparent background, for light and dark pages.
"""
import math

GREY = "#7d8590"
OURS, THEIRS = "#2f81d7", "#e0912f"
OF_PRECISION = {"fp32": "#2f81d7", "tf32": "#2da06a", "bf16": "#e0912f", "fp16": "#c9569f"}
LEAST_DIFFERENCE = 1e-8  # smaller differences mean nothing: an fp32 loss near 1 has a rounding error of up to 6e-8
WIDTH, LEFT, RIGHT, GAP = 860, 56, 16, 14
PANEL_TOP, PANEL_HEIGHT, LOW_TOP, LOW_HEIGHT = 52, 150, 274, 150
HEIGHT = LOW_TOP + LOW_HEIGHT + 26


class Panel:
    """A rectangle for steps 1 to `steps` and values from `low` to `high`, on a logarithmic scale if `decades`."""

    def __init__(self, x, y, width, height, steps, low, high, decades=False):
        self.x, self.y, self.width, self.height, self.steps = x, y, width, height, steps
        self.scale = math.log10 if decades else float
        self.low, self.high = self.scale(low), self.scale(high)

    def place_x(self, step):
        return self.x + self.width * (step - 1) / max(self.steps - 1, 1)

    def place_y(self, value):
        part = (self.scale(value) - self.low) / (self.high - self.low)
        return self.y + self.height * (1 - min(max(part, 0), 1))

    def frame(self, ticks, labels):
        """Draws grid lines at the ticks, the labels of the ticks on the left, and step numbers below."""
        parts = [f'<rect x="{self.x}" y="{self.y}" width="{self.width:.0f}" height="{self.height}" class="frame"/>']
        for tick, label in zip(ticks, labels):
            y = self.place_y(tick)
            parts.append(f'<path d="M{self.x} {y:.1f}h{self.width:.0f}" class="grid"/>')
            parts.append(f'<text x="{self.x - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
        middle = self.steps // 2
        marks = [(1, 1, "start"), (middle, f"step {middle}", "middle"), (self.steps, self.steps, "end")]
        for step, label, anchor in marks:
            parts.append(text(self.place_x(step), self.y + self.height + 15, label, anchor))
        return parts

    def line(self, values, colour, width):
        points = " ".join(f"{self.place_x(i):.1f},{self.place_y(value):.1f}" for i, value in enumerate(values, 1))
        return f'<polyline points="{points}" stroke="{colour}" stroke-width="{width}"/>'


def text(x, y, content, anchor="start", more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{more}>{content}</text>'


def legend(x, y, entries):
    """Draws the entries (name, colour, line width) from left to right."""
    parts = []
    for name, colour, width in entries:
        parts.append(f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="{width}"/>')
        parts.append(text(x + 28, y, name))
        x += 46 + 7 * len(name)
    return parts


def loss_panels(runs, steps):
    highest = max(max(side["loss"]) for sides in runs.values() for side in (sides["tessera"], sides["transformers"]))
    step = math.ceil(highest / 8)
    ticks = range(0, math.ceil(highest / step) * step + 1, step)
    width = (WIDTH - LEFT - RIGHT - GAP * (len(runs) - 1)) / len(runs)
    parts = []
    for i, (precision, sides) in enumerate(runs.items()):
        panel = Panel(round(LEFT + i * (width + GAP)), PANEL_TOP, width, PANEL_HEIGHT, steps, 0, ticks[-1])
        parts += panel.frame(ticks, [tick if i == 0 else "" for tick in ticks])
        parts.append(panel.line(sides["transformers"]["loss"], THEIRS, 4))
        parts.append(panel.line(sides["tessera"]["loss"], OURS, 1.2))
        parts.append(text(panel.x + width - 8, PANEL_TOP + 18, precision, "end", ' font-weight="bold"'))
    return parts


def difference_panel(runs, steps):
    """Draws the difference of each step. Differences below LEAST_DIFFERENCE, including 0, are on the lower edge."""
    largest = max(max(sides["difference"]) for sides in runs.values())
    ticks = [LEAST_DIFFERENCE]
    while ticks[-1] < largest or len(ticks) == 1:
        ticks.append(10 * ticks[-1])
    panel = Panel(LEFT, LOW_TOP, WIDTH - LEFT - RIGHT, LOW_HEIGHT, steps, ticks[0], ticks[-1], decades=True)
    parts = panel.frame(ticks, [f"{tick:.0e}".replace("-0", "-") for tick in ticks])
    for precision, sides in runs.items():
        values = [max(value, LEAST_DIFFERENCE) for value in sides["difference"]]
        parts.append(panel.line(values, OF_PRECISION[precision], 1.4))
    return parts


def draw(runs, facts):
    """Returns the SVG text.

    `runs` is {precision: {"tessera": {"loss": [...]}, "transformers": ..., "difference": [...]}}, with one value per
    step. `facts` has the number of steps, and the model, the device and the versions for the title.
    """
    steps = facts["steps"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
             f'font-size="12" fill="{GREY}">',
             "<title>Losses of Tessera and transformers, step by step</title>",
             f"<style>polyline{{fill:none;stroke-linejoin:round}}.frame{{fill:none;stroke:{GREY}}}"
             f".grid{{stroke:{GREY};stroke-opacity:.25}}</style>",
             text(LEFT, 16, f"Loss of each of {steps} steps, {facts['model']}: {facts['device']}, torch {facts['torch']}, "
                            f"transformers {facts['transformers']}")]
    parts += legend(LEFT, 38, [("transformers", THEIRS, 4), ("Tessera", OURS, 1.2)]) + loss_panels(runs, steps)
    parts.append(text(LEFT, LOW_TOP - 34, "Difference of the two losses"))
    parts += legend(LEFT, LOW_TOP - 14, [(precision, OF_PRECISION[precision], 1.4) for precision in runs])
    parts += difference_panel(runs, steps)
    return "\n".join([*parts, "</svg>"]) + "\n"
