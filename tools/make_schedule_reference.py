#!/usr/bin/env python3
"""Makes tests/unit/train/schedules.json: learning rates of transformers' schedules for drawn parameters.

Runs the functions of transformers/optimization.py that compute a rate from a step. They are plain Python, so this needs
the package transformers (5.24.0 made the file), but not torch: pip install --no-deps transformers.
"""
import ast
import importlib.util
import json
import math
import pathlib
import random

TARGET = pathlib.Path(__file__).parent.parent / "tests" / "unit" / "train" / "schedules.json"
CASES = 6  # of each schedule


def functions():
    """The functions `_get_*_lambda` of transformers/optimization.py."""
    folder = importlib.util.find_spec("transformers").submodule_search_locations[0]
    tree = ast.parse((pathlib.Path(folder) / "optimization.py").read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body
                 if isinstance(node, ast.FunctionDef) and node.name.startswith("_get_") and node.name.endswith("lambda")]
    names = {"math": math}
    exec("from __future__ import annotations", names)
    exec(compile(tree, "optimization.py", "exec", dont_inherit=False), names)
    return names


def drawn(kind, draw):
    """The Trainer's arguments for a run: (learning rate, warm-up, all steps, lr_scheduler_kwargs)."""
    steps = draw.randint(20, 4000)
    warmup = draw.choice([0, draw.randint(1, steps // 3), round(draw.uniform(0.01, 0.3), 3)])
    lr = draw.choice([5e-5, 1e-3, 0.02])
    lowest = draw.choice([{"min_lr": lr * draw.uniform(0.01, 0.5)}, {"min_lr_rate": round(draw.uniform(0.01, 0.5), 3)}])
    some = draw.random() < 0.7
    if kind == "cosine":
        return lr, warmup, steps, {"num_cycles": draw.choice([0.5, 1.5, 0.25])} if some else {}
    if kind == "cosine_with_restarts":
        return lr, warmup, steps, {"num_cycles": draw.randint(2, 5)} if some else {}
    if kind == "cosine_with_min_lr":
        return lr, warmup, steps, lowest
    if kind == "polynomial":
        return lr, warmup, steps, {"power": draw.choice([0.5, 2, 3.5]), "lr_end": lr * 0.1} if some else {}
    if kind == "inverse_sqrt":
        return lr, warmup, steps, {"timescale": draw.randint(1, 500)} if some else {}
    if kind == "warmup_stable_decay":
        kwargs = {"num_decay_steps": draw.randint(1, steps // 2), "decay_type": draw.choice(["linear", "cosine", "1-sqrt"])}
        return lr, warmup, steps, kwargs | ({"min_lr_ratio": round(draw.uniform(0, 0.3), 3)} if some else {})
    return lr, warmup, steps, {}


def rate_of(kind, lr, warmup, steps, kwargs, names):
    """The function from a step to its rate, as transformers.get_scheduler makes it."""
    warm = {"num_warmup_steps": warmup}
    long = warm | {"num_training_steps": steps}
    if kind == "constant_with_warmup":
        return lambda s: lr * names["_get_constant_schedule_with_warmup_lr_lambda"](s, **warm)
    if kind == "linear":
        return lambda s: lr * names["_get_linear_schedule_with_warmup_lr_lambda"](s, **long)
    if kind in ("cosine", "cosine_with_min_lr"):
        rest = {"num_cycles": kwargs.get("num_cycles", 0.5)}
        if kind == "cosine_with_min_lr":
            rest["min_lr_rate"] = kwargs.get("min_lr_rate", kwargs.get("min_lr", 0) / lr)
        return lambda s: lr * names["_get_cosine_schedule_with_warmup_lr_lambda"](s, **long, **rest)
    if kind == "cosine_with_restarts":
        name = "_get_cosine_with_hard_restarts_schedule_with_warmup_lr_lambda"
        return lambda s: lr * names[name](s, **long, num_cycles=kwargs.get("num_cycles", 1))
    if kind == "polynomial":
        rest = {"lr_end": kwargs.get("lr_end", 1e-7), "power": kwargs.get("power", 1.0), "lr_init": lr}
        return lambda s: lr * names["_get_polynomial_decay_schedule_with_warmup_lr_lambda"](s, **long, **rest)
    if kind == "inverse_sqrt":
        timescale = kwargs.get("timescale", warmup or 10_000)
        return lambda s: lr * names["_get_inverse_sqrt_schedule_lr_lambda"](s, **warm, timescale=timescale)
    decay = kwargs["num_decay_steps"]
    rest = {"num_stable_steps": steps - warmup - decay, "num_decay_steps": decay, "warmup_type": "linear",
            "decay_type": kwargs["decay_type"], "min_lr_ratio": kwargs.get("min_lr_ratio", 0), "num_cycles": 0.5}
    return lambda s: lr * names["_get_wsd_scheduler_lambda"](s, **warm, **rest)


def main():
    names, draw, cases = functions(), random.Random(7), []
    for kind in ["constant_with_warmup", "linear", "cosine", "cosine_with_min_lr", "cosine_with_restarts", "polynomial",
                 "inverse_sqrt", "warmup_stable_decay"]:
        for _ in range(CASES):
            lr, given, steps, kwargs = drawn(kind, draw)
            warmup = given if given >= 1 else math.ceil(steps * given)  # TrainingArguments.get_warmup_steps
            rate = rate_of(kind, lr, warmup, steps, kwargs, names)
            at = sorted({0, warmup // 2, warmup, steps - 1, *(draw.randrange(steps) for _ in range(5))})
            cases.append({"lr_scheduler_type": kind, "learning_rate": lr, "warmup_steps": given, "max_steps": steps,
                          "lr_scheduler_kwargs": kwargs, "rates": [[step, rate(step)] for step in at]})
    TARGET.write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
