"""The Python module: results equal those of the program, functions of the program, Ctrl-C, errors, threads, references,
type hints, and the examples of docs/python.md."""
import ast
import gc
import glob
import inspect
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import typing
import unittest
import weakref
from pathlib import Path

import numpy as np

from tessera_cli import PROGRAM, RUN_LIMIT_S, CliTest, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.dirname(PROGRAM)
sys.path.insert(0, os.path.join(BUILD, "python"))
import tessera  # noqa: E402

QUICKSTART = os.path.join(ROOT, "recipes", "quickstart")
MODEL, TRAIN, EVAL = (os.path.join(QUICKSTART, name) for name in ("model", "train.json", "eval.json"))
CHAT_MODEL, CHAT_TEMPLATE = (os.path.join(ROOT, "recipes", "chat", name) for name in ("model", "chat_template.jinja"))
RUN = {"model": MODEL, "dataset": TRAIN, "max_steps": 4, "max_length": 128, "batch_size": 4, "device": "cpu",
       "threads": 2, "precision": "fp32", "save_strategy": "no"}
LONG = {**RUN, "max_steps": 1_000_000}
HEADER = "import os, signal, sys, threading, time\nimport tessera\n"


def flags(settings):
    return [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]


class ModuleTest(CliTest):
    def path(self, *names):
        return os.path.join(self.folder, *names)

    def losses(self, name="run", settings=RUN, **more):
        losses = []
        tessera.train(**settings, output_dir=self.path(name), on_step=lambda step: losses.append(step.loss), **more)
        return losses

    def start(self, script, **options):
        """A Python process that runs the script with the module."""
        environment = {**os.environ, "PYTHONPATH": os.path.join(BUILD, "python")}
        process = subprocess.Popen([sys.executable, "-X", "dev", "-c", HEADER + script], env=environment, text=True,
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        self.addCleanup(process.kill)
        return process

    def run_script(self, script, code=0, **options):
        process = self.start(script, **options)
        out, err = process.communicate(timeout=RUN_LIMIT_S)
        self.assertEqual(process.returncode, code, err)
        return out, err


class Training(ModuleTest):
    def test_a_run_equals_the_run_of_the_program(self):
        settings = {**RUN, "eval_dataset": EVAL, "eval_size": 8, "eval_steps": 2, "learning_rate": 3e-4, "seed": 3,
                    "save_dtype": "fp32"}
        evaluations = []
        steps = []
        result = tessera.train(**settings, output_dir=Path(self.path("module")), on_step=steps.append,
                               on_evaluation=evaluations.append)
        self.succeeds("train", *flags(settings), "--output-dir", "program", "--logging-steps", "1")
        with open(self.path("program", "metrics.jsonl")) as file:
            records = [json.loads(line) for line in file]
        self.assertEqual([step.loss for step in steps], [r["loss"] for r in records if r["kind"] == "train"])
        self.assertEqual([e.loss for e in evaluations], [r["eval_loss"] for r in records if r["kind"] == "eval"])
        for name in ("model/model.safetensors", "model/config.json"):
            with open(self.path("module", name), "rb") as own, open(self.path("program", name), "rb") as other:
                self.assertEqual(own.read(), other.read())
        with open(self.path("module", "summary.json")) as file:
            self.assertEqual(result.summary, json.load(file))
        self.assertEqual([e.step for e in evaluations], [2, 4])
        self.assertEqual([e.loss for e in result.evaluations], [e.loss for e in evaluations])
        self.assertTrue(result.finished)
        self.assertEqual((result.steps, result.output_dir), (4, self.path("module")))
        self.assertEqual(result.model, self.path("module", "model"))
        self.assertEqual([step.step for step in steps], [1, 2, 3, 4])
        self.assertEqual(sum(step.num_targets for step in steps), result.num_targets)
        self.assertTrue(all(step.updated and step.gradient_norm > 0 for step in steps))

        with tessera.Model(self.path("module"), device="cpu", seed=3) as model:
            measured = model.evaluate(eval_dataset=EVAL, eval_size=8, max_length=128)
        self.assertAlmostEqual(measured.loss, evaluations[-1].loss, places=5)

    def test_on_step_stops_and_finishes(self):
        whole = self.losses("whole")
        seen = []

        def stop(step):
            seen.append(step.loss)
            return "stop" if step.step == 2 else None

        result = tessera.train(**RUN, output_dir=self.path("stopped"), on_step=stop)
        self.assertEqual((result.finished, result.steps, result.model, result.summary), (False, 2, None, None))
        tessera.train(**RUN, output_dir=self.path("stopped"), on_step=lambda step: seen.append(step.loss))
        self.assertEqual(seen, whole)
        result = tessera.train(**RUN, output_dir=self.path("finished"), on_step=lambda step: "finish")
        self.assertEqual((result.finished, result.steps), (True, 1))
        with self.assertRaisesRegex(TypeError, 'on_step must return None, "stop" or "finish", not True'):
            tessera.train(**RUN, output_dir=self.path("wrong"), on_step=lambda step: True)

    def test_iterator(self):
        settings = {**RUN, "eval_dataset": EVAL, "eval_size": 4, "eval_steps": 2}
        whole = self.losses("whole", settings)
        items = list(tessera.Training(**settings, output_dir=self.path("run")))
        self.assertEqual([type(item).__name__ for item in items], ["StepMetrics", "StepMetrics", "Evaluation"] * 2)
        self.assertEqual([item.loss for item in items if isinstance(item, tessera.StepMetrics)], whole)

        # The run continues where the loop ended.
        for item in tessera.Training(**RUN, output_dir=self.path("left")):
            break
        self.assertEqual(os.listdir(self.path("left", "checkpoints") if os.path.isdir(self.path("left", "checkpoints"))
                                    else self.path("left")).count("checkpoint-1"), 1)
        with tessera.Training(**RUN, output_dir=self.path("left")) as training:
            rest = [item.loss for item in training]
        self.assertEqual([item.loss, *rest], whole)
        self.assertTrue(training.result.finished)
        self.assertEqual(list(training), [])

        with self.assertRaisesRegex(ZeroDivisionError, "own"):
            with tessera.Training(**RUN, output_dir=self.path("failed")) as training:
                next(training)
                with self.assertRaisesRegex(RuntimeError, "no result yet"):
                    training.result
                raise ZeroDivisionError("own")
        self.assertEqual((training.result.finished, training.result.steps), (False, 1))

        training = tessera.Training(model=MODEL, datasett=TRAIN)
        with self.assertRaisesRegex(tessera.UsageError, 'datasett: unknown setting. Did you mean "dataset"'):
            next(training)
        self.assertRaises(StopIteration, next, training)
        with self.assertRaises(tessera.UsageError):
            training.result
        unused = tessera.Training(**RUN, output_dir=self.path("unused"))
        unused.close()
        self.assertEqual(list(unused), [])
        self.assertFalse(os.path.exists(self.path("unused")))
        self.assertEqual([thread for thread in threading.enumerate() if thread.name == "tessera training"], [])

    def test_the_end_of_the_interpreter_stops_runs(self):
        self.run_script(f"training = tessera.Training(**{LONG}, output_dir='run')\nprint(next(training).step)\n")
        self.assertIn("checkpoint-1", os.listdir(self.path("run")))
        # A thread of the program that trains then waits for the end of the process.
        script = f"""
seen = threading.Event()
def run():
    tessera.train(**{LONG}, output_dir='other', on_step=lambda step: seen.set())
threading.Thread(target=run, daemon=True).start()
seen.wait()
"""
        self.run_script(script)

    def test_plan(self):
        settings = {"model": MODEL, "batch_size": 4, "max_length": 128, "device": "cpu", "threads": 2}
        plan = tessera.plan(**settings)
        code, out, err = self.run_tessera("plan", *flags(settings), "--json", cwd=os.getcwd())
        changes = {"disk_bytes": 0}  # free space changes
        self.assertEqual({**plan.record, **changes}, {**json.loads(out), **changes}, err)
        code, out, err = self.run_tessera("plan", *flags(settings), cwd=os.getcwd())
        without_space = [re.sub("disk space .*", "", text) for text in (str(plan), out)]
        self.assertEqual(*without_space)
        self.assertEqual(plan.peak_bytes, plan.record["peak_bytes"])
        step = {row.category: row.device_bytes for row in plan.bytes if row.phase == "step"}
        self.assertGreater(step["parameters"], 0)
        found = tessera.plan(model="bloom-560m", init="random", fit="80GiB", batch_size=4)
        self.assertIsInstance(found.estimated_step_s, float)
        self.assertTrue(found.settings)

    def test_export(self):
        path = tessera.export(model=MODEL, gguf="f16", output_dir=self.path("exported"))
        self.assertTrue(path.endswith(".gguf") and os.path.getsize(path) > 1000, path)

    def test_configuration_file(self):
        file = self.write("run.toml", f'model = "{MODEL}"\nmax_steps = 9\nseed = 3\n')
        settings = {k: v for k, v in RUN.items() if k != "model"}
        self.assertEqual(self.losses("file", settings, config_file=file), self.losses("other", {**RUN, "seed": 3}))


class OwnLosses(ModuleTest):
    @staticmethod
    def cross_entropy(chunk):
        logits = chunk.logits.astype(np.float64)
        rows = np.arange(chunk.num_rows)
        probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        loss = -np.log(probabilities[rows, chunk.targets]).sum()
        if chunk.needs_gradients:
            probabilities[rows, chunk.targets] -= 1
            chunk.logits[...] = chunk.scale * probabilities
        return loss

    def test_the_built_in_loss_has_the_same_bits(self):
        built_in = self.losses("built-in")
        self.assertEqual(self.losses("own", loss=lambda chunk: chunk.cross_entropy()), built_in)

        def row_by_row(chunk):
            loss = 0.0
            for row in range(chunk.num_rows):  # since Python 3.12, sum() rounds less often
                loss += chunk.cross_entropy(row)
            return loss

        self.assertEqual(self.losses("rows", loss=row_by_row), built_in)

        def after_a_look(chunk):
            chunk.logits.sum()
            return chunk.cross_entropy()

        self.assertEqual(self.losses("look", loss=after_a_look), built_in)

        def part_by_part(chunk):
            """The first row is computed here, the other rows in the library."""
            first = chunk.logits[0].astype(np.float64)
            first = np.exp(first - first.max())
            first /= first.sum()
            loss = -np.log(first[chunk.targets[0]])
            if chunk.needs_gradients:
                first[chunk.targets[0]] -= 1
                chunk.logits[0] = chunk.scale * first
            return loss + sum(chunk.cross_entropy(row) for row in range(1, chunk.num_rows))

        # The gradients differ by the rounding of one fp32 value: 6e-8, and less than 100 times as much after 4 steps.
        for name, loss in (("numpy", self.cross_entropy), ("parts", part_by_part)):
            np.testing.assert_allclose(self.losses(name, loss=loss), built_in, rtol=6e-6)

    def test_chunks(self):
        kept = []

        def loss(chunk):
            kept.append(chunk)
            self.assertEqual(chunk.logits.shape, (chunk.num_rows, chunk.vocab_size))
            self.assertEqual((chunk.logits.dtype, chunk.targets.dtype, chunk.rows.dtype),
                             (np.float32, np.int32, np.int64))
            self.assertEqual(chunk.positions.shape, chunk.targets.shape)
            self.assertFalse(chunk.needs_gradients)
            with self.assertRaises(IndexError):
                chunk.cross_entropy(chunk.num_rows)
            with self.assertRaises(IndexError):
                chunk.cross_entropy(-1)
            return chunk.cross_entropy(0, 2.0) / 2

        with tessera.Model(MODEL, device="cpu") as model:
            model.evaluate(rows=[{"prompt": "Ada", "completion": " lives"}, {"prompt": "Ada", "completion": " runs"}],
                           loss=loss, eval_batch_size=1)
            self.assertEqual([chunk.rows[0] for chunk in kept], [0, 1])
            self.assertTrue(np.isfinite(kept[0].logits).all())  # it belongs to the program
            with self.assertRaisesRegex(RuntimeError, "only during the call"):
                kept[0].cross_entropy()
            with self.assertRaisesRegex(ZeroDivisionError, "own"):
                model.evaluate(rows=[{"prompt": "Ada", "completion": " lives"}],
                               loss=lambda chunk: self.fail_with("own"))
            with self.assertRaises(TypeError):
                model.evaluate(rows=[{"prompt": "Ada", "completion": " lives"}], loss=lambda chunk: None)
            self.assertGreater(model.evaluate(rows=[{"prompt": "Ada", "completion": " lives"}]).loss, 0)

    @staticmethod
    def fail_with(text):
        raise ZeroDivisionError(text)


class Rows(ModuleTest):
    def test_rows_equal_the_same_rows_in_a_file(self):
        rows = [{"prompt": f"The number after {i} is", "completion": f" {i + 1}"} for i in range(12)]
        file = self.write("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        without = {k: v for k, v in RUN.items() if k != "dataset"}
        expected = self.losses("file", {**without, "dataset": file})
        self.assertEqual(self.losses("list", without, rows=rows), expected)
        self.assertEqual(self.losses("generator", without, rows=(row for row in rows)), expected)

    def test_token_ids(self):
        tokenizer = tessera.Tokenizer(MODEL)
        ids = tokenizer.encode("Ada lives in Oslo.")
        self.assertEqual(tokenizer.decode(np.array(ids)), "Ada lives in Oslo.")
        self.assertEqual(tokenizer.id_of("no such token"), None)
        self.assertGreater(tokenizer.vocab_size, max(ids))
        with tessera.Model(MODEL, device="cpu") as model:
            plain = model.evaluate(rows=[ids]).loss
            for row in (np.array(ids), np.array(ids, dtype=np.int64), tuple(ids), tessera.Tokens(ids),
                        tessera.Tokens(np.array(ids, dtype=np.uint16), np.ones(len(ids), dtype=bool))):
                self.assertEqual(model.evaluate(rows=[row]).loss, plain)
            last = model.evaluate(rows=[tessera.Tokens(ids, [False] * (len(ids) - 1) + [True])])
            self.assertNotEqual(last.loss, plain)

            for row, error, text in [
                    ([1, 2.5], TypeError, r"rows\[1\]: "), (3, TypeError, r"rows\[1\]: "),
                    (np.zeros((2, 2), dtype=int), ValueError, r"rows\[1\]: token ids must have one dimension, not 2"),
                    ([1, 2**40], ValueError, r"rows\[1\]: a token id is outside the range of int32"),
                    (tessera.Tokens(ids, [True]), ValueError, rf"rows\[1\]: {len(ids)} ids, but has_loss has 1 value"),
                    ({"prompt": {1}}, TypeError, r"rows\[1\]: .*JSON"),
                    ([1, 10**6], tessera.InputError, r"rows\[1\]"),
                    ({"prompt": "a"}, tessera.InputError, r"rows\[1\]")]:
                with self.assertRaisesRegex(error, text):
                    model.evaluate(rows=[ids, row])
            for rows in ("text", {"prompt": "a"}):
                with self.assertRaisesRegex(TypeError, "rows must be an iterable of rows"):
                    model.evaluate(rows=rows)
            self.assertEqual(model.evaluate(rows=[ids]).loss, plain)

    def test_an_exception_of_a_generator_leaves_the_call(self):
        def rows():
            yield "text"
            raise LookupError("own")

        with self.assertRaisesRegex(LookupError, "own"):
            tessera.train(model=MODEL, output_dir=self.path("run"), rows=rows(), objective="causal_lm")


class Models(ModuleTest):
    def test_generates_like_the_program(self):
        out = self.succeeds("generate", "--model", MODEL, "--prompt", "Ada lives in", "--max-new-tokens", "8",
                            "--device", "cpu", "--json")
        parts = []
        with tessera.Model.load(MODEL, device="cpu") as model:
            self.assertGreater(model.num_parameters, 1000)
            self.assertEqual(model.max_positions, 0)  # BLOOM has no limit
            answer = model.generate("Ada lives in", max_new_tokens=8, on_text=parts.append)
            self.assertEqual(answer.ids, json.loads(out)["ids"])
            self.assertEqual("".join(parts), answer.text)
            both = model.generate_all(["Ada lives in", "Oslo"], max_new_tokens=8)
            self.assertEqual(both[0].ids, answer.ids)
            cut = model.generate("Ada lives in", max_new_tokens=8, on_text=lambda part: False)
            self.assertEqual(cut.finish_reason, "cancelled")
            stop = answer.text[3:5]
            self.assertEqual(model.generate("Ada lives in", max_new_tokens=8, stop=stop).finish_reason, "stop")
            drawn = [model.generate("Ada", max_new_tokens=8, temperature=5.0, seed=seed).ids for seed in (1, 1, 2)]
            self.assertEqual(drawn[0], drawn[1])
            self.assertNotEqual(drawn[0], drawn[2])
            with self.assertRaisesRegex(tessera.UsageError, "temperature"):
                model.generate("Ada", temperature=-1.0)
            with self.assertRaises(TypeError):
                model.generate_all("one text")
            with self.assertRaises(TypeError):
                model.generate("Ada", max_new_tokens="3")
            model.save(self.path("saved"))
        with tessera.Model(self.path("saved"), device="cpu") as model:
            self.assertEqual(model.generate("Ada lives in", max_new_tokens=8).ids, answer.ids)
        for call in (lambda: model.generate("Ada"), lambda: model.chat()):
            with self.assertRaisesRegex(RuntimeError, "closed"):
                call()
        model.close()

    def test_chat(self):
        model = tessera.Model(CHAT_MODEL, chat_template=CHAT_TEMPLATE, device="cpu")
        self.assertGreater(model.max_positions, 0)
        chat = model.chat("Answer briefly.")
        answer = chat.say("Who are you?", max_new_tokens=5)
        self.assertEqual(chat.messages, [{"role": "system", "content": "Answer briefly."},
                                         {"role": "user", "content": "Who are you?"},
                                         {"role": "assistant", "content": answer.text}])
        direct = model.generate(chat.messages[:2], max_new_tokens=5)
        self.assertEqual(direct.ids, answer.ids)
        with self.assertRaises(tessera.UsageError):
            chat.say("", temperature=-1)
        self.assertEqual(len(chat.messages), 3)
        self.assertTrue(chat.undo())
        chat.set_system("")
        self.assertEqual(chat.messages, [])
        chat.say("a", max_new_tokens=1)
        chat.reset()
        self.assertEqual(chat.messages, [])
        self.assertFalse(chat.undo())
        model.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            chat.say("a")

    def test_adapters(self):
        result = tessera.train(**RUN, adapter="lora", lora_target_modules=["query_key_value"], learning_rate=1e-1,
                               output_dir=self.path("adapter"))
        with tessera.Model(MODEL, device="cpu") as model:
            plain = model.evaluate(eval_dataset=EVAL, eval_size=4).loss
            model.use_adapter(result.model)
            self.assertNotEqual(model.evaluate(eval_dataset=EVAL, eval_size=4).loss, plain)
            model.use_adapter(None)
            self.assertEqual(model.evaluate(eval_dataset=EVAL, eval_size=4).loss, plain)


class Errors(ModuleTest):
    def test_kinds(self):
        cases = [(tessera.UsageError, "usage", "learning-rate",
                  lambda: tessera.train(model=MODEL, **{"learning-rate": -1})),
                 (tessera.UsageError, "usage", "modle", lambda: tessera.plan(modle="x")),
                 (tessera.InputError, "input", "nothing", lambda: tessera.Model("nothing")),
                 (tessera.InputError, "input", "nothing", lambda: tessera.Tokenizer("nothing")),
                 (tessera.OutOfMemoryError, "memory", "", lambda: tessera.train(
                     **{**RUN, "model": "bloom-176b"}, init="random", tokenizer=MODEL, output_dir=self.path("large")))]
        for kind, name, subject, call in cases:
            with self.assertRaises(kind) as caught:
                call()
            error = caught.exception
            self.assertIsInstance(error, tessera.Error)
            self.assertEqual(error.kind, name)
            self.assertIn(subject, error.subject)
            self.assertTrue(error.text)
            self.assertEqual(str(error), f"{error.subject}: {error.text}" if error.subject else error.text)
            same = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(same), str(same)), (kind, str(error)))
        self.assertIn("Did you mean", str(self.error_of(lambda: tessera.train(learning_rat=1))))

    def error_of(self, call):
        with self.assertRaises(tessera.Error) as caught:
            call()
        return caught.exception

    def test_types_of_values(self):
        for value in (object(), b"bytes", [1.5], [True], {}, np.zeros(2)):
            with self.assertRaisesRegex(TypeError, "max_steps"):
                tessera.train(model=MODEL, max_steps=value)
        with self.assertRaises(OverflowError):
            tessera.train(model=MODEL, max_steps=2**70)
        steps = {**RUN, "max_steps": np.int64(2), "learning_rate": np.float32(1e-3), "shuffle": np.bool_(False),
                 "seed": None}
        self.assertEqual(len(self.losses("scalars", steps)), 2)

    def test_exceptions_of_functions_leave_the_call(self):
        class Own(BaseException):
            pass

        def fail(*arguments):
            raise Own("own")

        for hook in ("on_step", "on_evaluation", "loss", "log"):
            with self.assertRaisesRegex(Own, "own"):
                tessera.train(**RUN, eval_dataset=EVAL, eval_size=4, output_dir=self.path(hook), **{hook: fail})
            self.assertEqual([name for name in os.listdir(self.path(hook)) if name.startswith("checkpoint-")]
                             if os.path.isdir(self.path(hook)) else [], [])
        model = tessera.Model(MODEL, device="cpu")
        with self.assertRaisesRegex(Own, "own"):
            model.generate("Ada", on_text=fail, max_new_tokens=4)
        self.assertEqual(len(model.generate("Ada", max_new_tokens=4).ids), 4)

    def test_log(self):
        messages = []
        tessera.train(**RUN, output_dir=self.path("run"), log=lambda level, text: messages.append((level, text)))
        self.assertEqual({level for level, _ in messages} - {"warning"}, {"result", "note"})
        self.assertTrue(any("loss" in text for _, text in messages))
        messages.clear()
        with tessera.Model(MODEL, device="cpu", log=lambda *message: messages.append(message)) as model:
            model.evaluate(rows=[{"prompt": "a", "completion": "b"}, {"prompt": "a"}], bad_rows="skip",
                           max_bad_rows=0.5)
        self.assertTrue([text for level, text in messages if level == "warning" and "bad row" in text], messages)
        out, err = self.run_script(f"tessera.train(**{RUN}, output_dir='silent')\n"
                                   f"tessera.Model({MODEL!r}, device='cpu').generate('Ada', max_new_tokens=2)\n")
        self.assertEqual((out, err), ("", ""))


class CtrlC(ModuleTest):
    def interrupted(self, script, after, signals=1):
        """Sends SIGINT when the script has printed `after`. Returns standard error."""
        process = self.start(script)
        for line in process.stdout:
            if line.strip() == after:
                break
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
            time.sleep(0.5 if signals > 1 else 0)
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        # Python ends with the signal if KeyboardInterrupt reaches the top.
        self.assertEqual(process.returncode, -signal.SIGINT, err)
        self.assertIn("KeyboardInterrupt", err)
        return err

    def assert_continues(self, name):
        folder = self.path(name)
        self.assertTrue([entry for entry in os.listdir(folder) if entry.startswith("checkpoint-")])
        first = next(iter(tessera.Training(**LONG, output_dir=folder)))
        self.assertGreater(first.step, 3)

    def test_train(self):
        err = self.interrupted(f"""
tessera.train(**{LONG}, output_dir="run", on_step=lambda step: print("step", step.step, flush=True))
""", "step 3")
        self.assertRegex(err, r"KeyboardInterrupt: the training has ended after step \d+")
        self.assert_continues("run")

    def test_during_a_loss(self):
        """A loss is not interrupted, so the run saves a checkpoint. A second Ctrl-C interrupts it."""
        script = f"""
def loss(chunk):
    begin = time.monotonic()
    if steps == 3: print("waiting", flush=True)
    while time.monotonic() < begin + (pause if steps == 3 else 0): pass
    return chunk.cross_entropy()
steps = 0
def on_step(step):
    global steps
    steps = step.step
tessera.train(**{LONG}, output_dir=folder, loss=loss, on_step=on_step)
"""
        self.interrupted("pause, folder = 1, 'run'" + script, "waiting")
        self.assert_continues("run")
        self.interrupted("pause, folder = 1000, 'twice'" + script, "waiting", signals=2)
        self.assertEqual([name for name in os.listdir(self.path("twice")) if name.startswith("checkpoint-")], [])

    def test_iterator(self):
        self.interrupted(f"""
with tessera.Training(**{LONG}, output_dir="run") as training:
    for item in training:
        print("step", item.step, flush=True)
""", "step 3")
        self.assert_continues("run")
        self.interrupted(f"""
for item in tessera.Training(**{LONG}, output_dir="other"):
    print("step", item.step, flush=True)
""", "step 3")
        self.assert_continues("other")

    def test_an_iteration_continues_after_interrupts_at_any_place(self):
        places = ("wait", "__next__", "_end", "close")

        def interrupt(number, frame):
            if frame.f_code.co_name in places and frame.f_code.co_filename.endswith("_training.py"):
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        self.addCleanup(signal.signal, signal.SIGALRM, before)
        self.addCleanup(signal.setitimer, signal.ITIMER_REAL, 0)
        for num_steps, wanted in ((100, 1000), (1000, 50)):
            settings = {**RUN, "max_steps": num_steps, "batch_size": 1, "max_length": 32, "threads": 1}
            training = tessera.Training(**settings, output_dir=self.path(str(num_steps)))
            steps, has_ended = [], False
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            while not has_ended and len(steps) < wanted:
                try:
                    steps.append(next(training).step)
                except KeyboardInterrupt:
                    pass
                except StopIteration:
                    has_ended = True
            while True:
                try:
                    training.close()
                    break
                except KeyboardInterrupt:
                    pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            # A step is seen once. An interrupt may arrive when next() returns it.
            self.assertEqual(steps, sorted(set(steps)))
            result = training.result
            self.assertEqual(result.finished, wanted > num_steps)
            self.assertTrue(result.steps == num_steps if result.finished else result.steps >= steps[-1], result.steps)

    def test_calls_of_a_model(self):
        """The call ends early, and the model can be used again."""
        for call in ("model.generate('Ada', max_new_tokens=200)",
                     "model.generate_all(['Ada'] * 64, max_new_tokens=200)",
                     "model.evaluate(rows=['Ada lives in Oslo. ' * 8] * 20000, objective='causal_lm')",
                     "chat.say('Who are you?', max_new_tokens=200)"):
            err = self.interrupted(f"""
model = tessera.Model({CHAT_MODEL!r}, chat_template={CHAT_TEMPLATE!r}, device="cpu", threads=1)
chat = model.chat()
try:
    print("loaded", flush=True)
    while True: {call}
finally:
    assert len(model.generate("Ada", max_new_tokens=2).ids) <= 2
    print("used again", file=sys.stderr)
""", "loaded")
            self.assertIn("used again", err)

    def test_handlers_of_the_program(self):
        """train() leaves the handlers of the program as they are."""
        seen = []
        before = signal.signal(signal.SIGINT, lambda *arguments: seen.append(1))
        try:
            own = signal.getsignal(signal.SIGINT)
            result = tessera.train(**RUN, output_dir=self.path("run"),
                                   on_step=lambda step: os.kill(os.getpid(), signal.SIGINT))
            self.assertTrue(result.finished)
            self.assertEqual(len(seen), 4)
            self.assertIs(signal.getsignal(signal.SIGINT), own)
        finally:
            signal.signal(signal.SIGINT, before)
        during = []
        tessera.train(**RUN, output_dir=self.path("other"),
                      on_step=lambda step: during.append(signal.getsignal(signal.SIGINT)))
        self.assertIsNot(during[0], before)
        self.assertIs(signal.getsignal(signal.SIGINT), before)


class Threads(ModuleTest):
    def in_threads(self, *works):
        results, errors = {}, []

        def run(number, work):
            try:
                results[number] = work()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(RUN_LIMIT_S)
        self.assertEqual(errors, [])
        return [results[number] for number in range(len(works))]

    def test_several_runs_and_models(self):
        alone = self.losses("alone")
        model = tessera.Model(MODEL, device="cpu", threads=1)
        expected = model.generate("Ada lives in", max_new_tokens=20).ids
        shared = lambda: [model.generate("Ada lives in", max_new_tokens=20).ids for _ in range(5)]  # noqa: E731
        results = self.in_threads(lambda: self.losses("one"), lambda: self.losses("two"), shared, shared)
        self.assertEqual(results, [alone, alone, [expected] * 5, [expected] * 5])

    def test_a_call_releases_the_gil(self):
        count, done = 0, threading.Event()

        def work():
            tessera.train(**{**RUN, "max_steps": 30, "threads": 1}, output_dir=self.path("run"))
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        while not done.wait(0.001):
            count += 1
        thread.join()
        self.assertGreater(count, 5)

    def test_a_function_must_not_call_its_model(self):
        model = tessera.Model(MODEL, device="cpu")
        with self.assertRaisesRegex(RuntimeError, "must not call the model"):
            model.generate("Ada", max_new_tokens=4, on_text=lambda part: model.generate("Oslo"))
        other = tessera.Model(MODEL, device="cpu")
        model.generate("Ada", max_new_tokens=2, on_text=lambda part: other.generate("Oslo", max_new_tokens=1))
        self.assertEqual(len(model.generate("Ada", max_new_tokens=2).ids), 2)


class References(ModuleTest):
    def test_no_reference_is_lost_or_kept(self):
        model = tessera.Model(MODEL, device="cpu", threads=1)
        functions = {"on_step": lambda step: None, "on_evaluation": lambda evaluation: None, "log": lambda *a: None,
                     "loss": lambda chunk: chunk.cross_entropy() + 0 * float(chunk.logits[0, 0])}
        rows = [{"prompt": "Ada lives in", "completion": " Oslo"}, [1, 2, 3]]
        without = {k: v for k, v in RUN.items() if k != "dataset"}

        def use_all(number):
            tessera.train(**{**without, "max_steps": 2}, rows=rows, eval_rows=rows,
                          output_dir=self.path(f"run{number}"), **functions)
            model.generate("Ada", max_new_tokens=2, on_text=functions["on_step"])
            model.generate_all(["Ada"], max_new_tokens=2)
            model.evaluate(rows=rows, loss=functions["loss"])
            chat_free = model.tokenizer.encode("Ada")
            model.tokenizer.decode(chat_free)
            for call in (lambda: model.generate("Ada", temperature=-1), lambda: tessera.plan(modle=1),
                         lambda: model.evaluate(rows=rows, loss=lambda chunk: None)):
                with self.assertRaises((tessera.Error, TypeError)):
                    call()
            shutil.rmtree(self.path(f"run{number}"))

        for number in range(3):  # fills caches
            use_all(number)
        gc.collect()
        values = [None, True, False, *functions.values(), rows, *rows, tessera.StepMetrics, tessera.Evaluation]
        before = [sys.getrefcount(value) for value in values]
        num_objects = len(gc.get_objects())
        for number in range(10):
            use_all(number)
        gc.collect()
        after = [sys.getrefcount(value) for value in values]
        # None is used by everything, so its count varies a little. A lost reference would count 10 times or more.
        differences = [abs(count - then) for count, then in zip(after, before)]
        self.assertLess(max(differences[:3]), 10)
        self.assertEqual(max(differences[3:]), 0, differences)
        self.assertLess(len(gc.get_objects()) - num_objects, 10)

    def test_a_model_in_a_cycle_is_freed(self):
        class Owner:
            def __init__(self):
                self.model = tessera.Model(MODEL, device="cpu", log=self.log)

            def log(self, level, text):
                pass

        owner = Owner()
        model = weakref.ref(owner.model)
        del owner
        gc.collect()
        self.assertIsNone(model())


class Packaging(ModuleTest):
    def test_type_hints_resolve(self):
        for name in tessera.__all__:
            value = getattr(tessera, name)
            self.assertTrue(hasattr(value, "__doc__"))
            functions = [value] if inspect.isfunction(value) else []
            if inspect.isclass(value):
                self.assertTrue(value.__doc__, name)
                functions = [member.fget if isinstance(member, property) else member for member in vars(value).values()
                             if inspect.isfunction(member) or isinstance(member, property)]
            for function in functions:
                hints = typing.get_type_hints(function)
                own = function.__module__.startswith("tessera")
                self.assertTrue(not own or "return" in hints, f"{name}: {function}")
        self.assertEqual(tessera.__version__, self.succeeds("--version").split()[1])

    @unittest.skipUnless(shutil.which("mypy"), "no mypy")
    def test_mypy(self):
        environment = {**os.environ, "MYPYPATH": os.path.join(BUILD, "python")}
        done = subprocess.run(["mypy", "--strict", "--python-version", "3.8", "--cache-dir", self.path("mypy"), "-p",
                               "tessera"], env=environment, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_python_3_8_can_read_the_files(self):
        files = glob.glob(os.path.join(ROOT, "python", "tessera", "*.py"))
        self.assertGreater(len(files), 5)
        for path in files:
            with open(path) as file:
                ast.parse(file.read(), path, feature_version=(3, 8))

    def test_without_numpy(self):
        self.run_script(f"""
sys.modules["numpy"] = None
losses = []
tessera.train(**{RUN}, output_dir="run", loss=lambda chunk: chunk.cross_entropy(), on_step=losses.append)
assert len(losses) == 4
try:
    tessera.train(**{RUN}, output_dir="other", loss=lambda chunk: chunk.logits.sum())
except ImportError as error:
    assert "pip install numpy" in str(error), error
else:
    raise AssertionError
""")

    def test_symbols_and_layout(self):
        [module] = glob.glob(os.path.join(BUILD, "python", "tessera", "_native*.so"))
        self.assertTrue(module.endswith("_native.abi3.so"))
        def symbols(which):
            return subprocess.run(["nm", "-D", which, module], stdout=subprocess.PIPE, text=True, check=True).stdout

        self.assertEqual([line.split()[-1] for line in symbols("--defined-only").splitlines()], ["PyInit__native"])
        # The module needs no function of Python that the stable ABI does not have.
        private = set(re.findall(r"\b_Py\w+", symbols("--undefined-only")))
        self.assertEqual(private - {"_Py_Dealloc", "_Py_NoneStruct", "_Py_TrueStruct"}, set())
        subprocess.run(["cmake", "--install", BUILD, "--component", "python", "--prefix", self.folder], check=True,
                       stdout=subprocess.DEVNULL)
        self.assertEqual(os.listdir(self.folder), ["tessera"])
        installed = set(os.listdir(self.path("tessera")))
        self.assertTrue({"__init__.py", "py.typed", "_native.pyi", "_native.abi3.so"} <= installed, installed)
        done = subprocess.run([sys.executable, "-c", "import tessera; print(tessera.__file__)"], cwd=self.folder,
                              stdout=subprocess.PIPE, text=True, check=True)
        self.assertIn(self.folder, done.stdout)


class Documents(ModuleTest):
    def test_the_examples_run(self):
        with open(os.path.join(ROOT, "docs", "python.md")) as file:
            page = file.read()
        examples = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(examples), 6)
        os.symlink(os.path.join(ROOT, "recipes"), self.path("recipes"))
        out, err = self.run_script("\n".join(examples))
        self.assertEqual(err, "")
        self.assertIn("step 6 of 6: loss ", out)
        self.assertIn("\nFalse 3\n", out)
        self.assertIn('usage modle unknown setting. Did you mean "model"?', out)


if __name__ == "__main__":
    main()
