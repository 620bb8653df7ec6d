"""Tests the verbs train, plan, eval, export and generate with tiny training runs (tiny_job.py)."""
import ast
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys

from tessera_cli import PROGRAM, RUN_LIMIT_S, main, unless_sanitized
from tiny_job import BLOOM, EVALUATED, GPT, JOB, USAGE, TinyJobTest, jsonl, questions, read_tensors, without_timing


class Output(TinyJobTest):
    def test_lines_of_the_trainer(self):
        out = self.train("out", "--eval-before", "--epochs", "2", "--logging-steps", "3")
        lines = [ast.literal_eval(line.removeprefix("Evaluation Metrics: ")) for line in out.splitlines()
                 if line.startswith(("{", "Evaluation Metrics: {"))]
        step = ["loss", "grad_norm", "learning_rate", "epoch"]
        evaluation = ["eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "epoch"]
        answers = ["exact_match", "f1"]
        whole = ["train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "epoch"]
        self.assertEqual([list(line) for line in lines],
                         [evaluation, answers, step, step, evaluation, answers, step, step, evaluation, answers, whole])
        for line in lines:
            self.assertTrue(all(isinstance(value, float) for value in line.values()), line)
        # An epoch has 22 samples in steps of 4 samples: 6 steps. The run has 12 steps, and prints a line at every third
        # step. The learning rate of step s is 1e-2 * (1 - (s - 1) / 12).
        self.assertEqual([line["epoch"] for line in lines if "loss" in line], [0.5, 1.0, 1.5, 2.0])
        for line, step in zip((line for line in lines if "loss" in line), (3, 6, 9, 12)):
            self.assertAlmostEqual(line["learning_rate"], 1e-2 * (1 - (step - 1) / 12), places=9)
        self.assertLess(lines[-1]["train_loss"], lines[0]["eval_loss"])
        # Every printed time and speed and the printed loss of a step are rounded. metrics.jsonl has all their digits.
        for line, record in zip((line for line in lines if "loss" in line), self.metrics("out", "train"), strict=True):
            self.assertEqual(line["loss"], round(record["loss"], 4))
        for line, record in zip((line for line in lines if "eval_loss" in line), self.metrics("out", "eval"), strict=True):
            self.assertEqual(line["eval_loss"], record["eval_loss"])
            self.assert_same_timing(line, record["timing"], evaluation[1:4])
        self.assert_same_timing(lines[-1], self.metrics("out", "summary")[0]["timing"], whole[:3])
        summary = self.json_of("out", "summary.json")
        self.assertEqual(summary["train_loss"], lines[-1]["train_loss"])
        self.assert_same_timing(lines[-1], summary, whole[:3])
        self.assert_same_timing(lines[-3], summary, evaluation[1:4])

    def test_lines_on_a_terminal(self):
        """On a terminal, the numbers in the line of a step have fewer digits than in metrics.jsonl. The line therefore
        fits into 80 columns."""
        controller, terminal = pty.openpty()
        process = subprocess.Popen([PROGRAM, "train", *EVALUATED, "--output-dir", "out", "--epochs", "2"],
                                   cwd=self.folder, env={**os.environ, "TERM": "xterm"}, stdin=subprocess.DEVNULL,
                                   stdout=terminal, stderr=subprocess.DEVNULL)
        os.close(terminal)
        out = b""
        try:
            while part := os.read(controller, 4096):
                out += part
        except OSError:  # the program has ended and closed the terminal
            pass
        os.close(controller)
        self.assertEqual(process.wait(timeout=RUN_LIMIT_S), 0)
        lines = [line for line in out.decode().splitlines() if line.startswith("{'loss'")]
        records = self.metrics("out", "train")
        self.assertEqual(len(lines), len(records))
        for line, record in zip(lines, records):
            self.assertLessEqual(len(line), 80, line)
            for key, value in ast.literal_eval(line).items():
                self.assertTrue(math.isclose(value, record[key], rel_tol=0.06), (line, key, record))
        self.assertGreater(max(len(str(record["grad_norm"])) for record in records), 15)

    def test_log_format(self):
        """--log-format json prints the records of the Trainer's lines as lines of JSON, and standard output has only these.
        The table shows no column without values. A run prints one speed, and its label says what it means."""
        self.write("text.jsonl", "".join(json.dumps({"text": f"a text with the number {i}"}) + "\n" for i in range(8)))
        words = ["--dataset", "text.jsonl", "--eval-dataset", "text.jsonl", "--objective", "causal_lm", "--max-steps", "4"]
        code, out, err = self.run_tessera("train", *JOB, *words, "--output-dir", "json", "--log-format", "json")
        self.assertEqual(code, 0, err)
        dicts = self.train("out", *words, job=JOB)
        lines, same = [json.loads(line) for line in out.splitlines()], [ast.literal_eval(line) for line in dicts.splitlines()
                                                                       if line.startswith("{")]
        self.assertEqual([list(line) for line in lines], [list(line) for line in same])
        self.assertEqual([line["loss"] for line in lines if "loss" in line], [line["loss"] for line in same if "loss" in line])
        self.assertEqual(without_timing(self.path("json", "metrics.jsonl")), without_timing(self.path("out", "metrics.jsonl")))
        for text in [err, dicts]:
            row = re.search(r"\| epoch \| train loss \| eval loss \| perplexity \|\n.*\n\|.*\|.*\| +([0-9.]+) \| +([0-9.]+) \|\n", text)
            self.assertAlmostEqual(float(row[2]), math.exp(float(row[1])), delta=0.1)
            self.assertEqual(re.findall(r"(?m)^speed .*", text), re.findall(r".*/s\b(?!econd).*", text))
        scored = self.train("scored", "--max-steps", "1")
        self.assertRegex(scored, r"\| epoch \| train loss \| eval loss \| exact match \| +F1 \|")
        out = self.succeeds("eval", "--model", "scored/model", "--eval-dataset", "eval.jsonl", "--eval-generation",
                            "--max-new-tokens", "2", env={"TESSERA_LOG_FORMAT": "json"})
        self.assertEqual([list(json.loads(line))[0] for line in out.splitlines()], ["eval_loss", "exact_match"])
        self.fails(USAGE, '--log-format: unknown value "xml"', "train", *JOB, "--output-dir", "no", "--log-format", "xml")

    def assert_same_timing(self, line, record, keys):
        for key in keys:
            self.assertEqual(line[key], round(record[key], 4 if key.endswith("_runtime") else 3), key)

    def test_a_single_step_has_a_speed(self):
        out = self.train("out", "--max-steps", "1", job=JOB)
        self.assertRegex(out, r"(?m)^speed   [1-9][0-9.]* tokens/s of the complete run$")

    def test_files(self):
        self.train("out", "--eval-before", "--epochs", "2")
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         ["checkpoint-12", "checkpoint-6", "metrics.jsonl", "model", "resolved-config.toml", "summary.json"])
        kinds = [json.loads(line)["kind"] for line in self.read("out", "metrics.jsonl").splitlines()]
        self.assertEqual(kinds, ["eval"] + 2 * (6 * ["train"] + ["eval"]) + ["summary"])
        summary = self.json_of("out", "summary.json")
        before, last = self.metrics("out", "eval")[0], self.metrics("out", "eval")[-1]
        for key in ["exact_match", "f1", "eval_loss"]:
            self.assertEqual(summary[key], last[key])
            self.assertEqual(summary[key + "_before"], before[key])
        losses = [record["loss"] for record in self.metrics("out", "train")]
        self.assertAlmostEqual(summary["train_loss"], sum(losses) / 12, places=12)
        self.assertEqual((summary["steps"], summary["epoch"], summary["num_samples"]), (12, 2.0, 44))
        self.assertEqual(summary["num_tokens"], sum(record["num_tokens"] for record in self.metrics("out", "train")))
        self.assertGreater(summary["train_samples_per_second"], 0)
        self.assertGreater(summary["peak_memory_bytes"], summary["ledger_peak_bytes"]["total"])
        self.assertEqual([row["epoch"] for row in summary["epochs"]], [1.0, 2.0])
        self.assertAlmostEqual(summary["epochs"][1]["train_loss"], sum(losses[6:]) / 6, places=12)
        self.assertEqual(self.json_of("out", "model", "config.json")["hidden_size"], BLOOM["hidden_size"])

    def test_resolved_config_is_a_config(self):
        self.train("out", "--epochs", "1.5")
        os.rename(self.path("out"), self.path("first"))
        out = self.succeeds("train", self.path("first", "resolved-config.toml"))
        self.assertIn("'train_loss'", out)
        self.assert_same_results("first", "out")

    def test_json(self):
        printed = json.loads(self.train("out", "--json"))
        self.assertEqual(printed, self.json_of("out", "summary.json"))

    def test_a_loss_that_is_not_finite(self):
        """After the first update, no loss is finite. The run prints such losses and excludes them from the mean. No
        evaluation has a finite loss. Therefore, no model is the best, and the run keeps the last model."""
        words = ["--lr", "1e25", "--max-grad-norm", "0", "--load-best-model-at-end", "--save-total-limit", "1",
                 "--max-skipped-updates", "0"]
        out = self.train("out", *words)
        self.assertIn("{'loss': nan,", out)
        summary = self.json_of("out", "summary.json")
        self.assertEqual((summary["eval_loss"], summary["best_step"]), (None, 0))
        self.assertEqual(summary["skipped_steps"], summary["steps"] - 1)
        self.assertEqual(summary["train_loss"], self.metrics("out", "train")[0]["loss"])
        self.assertIn(f"'train_loss': {summary['train_loss']}", self.train("out", *words))


class Schedule(TinyJobTest):
    def test_epochs_and_max_steps(self):
        for words, steps in [(["--epochs", "1"], 6), (["--epochs", "0.5"], 3), (["--epochs", "1.2"], 8),
                             (["--epochs", "0.01"], 1), (["--max-steps", "7"], 7), (["--max-steps=7", "--epochs=1"], 7),
                             (["--epochs", "1", "--grad-accum", "2"], 3), (["--epochs=2", "--batch-size=30"], 2)]:
            with self.subTest(words=words):
                self.train("out", *words, "--resume", "none", "--overwrite", job=JOB)
                self.assertEqual([r["step"] for r in self.metrics("out", "train")], list(range(1, steps + 1)))
                self.assertEqual(self.json_of("out", "summary.json")["steps"], steps)

    def test_evaluations_and_checkpoints(self):
        every = ["--eval-strategy", "steps", "--eval-steps", "2", "--save-strategy", "steps", "--save-steps", "5"]
        for words, evaluated, saved in [
            ([], [6, 8], [6, 8]), (every, [2, 4, 6, 8], [5, 8]),
            (["--eval-strategy", "no", "--save-strategy", "no"], [], []),
            (every + ["--save-total-limit", "1"], [2, 4, 6, 8], [8]),
            (["--save-strategy", "steps", "--save-steps", "2", "--save-total-limit", "2"], [6, 8], [6, 8]),
        ]:
            with self.subTest(words=words):
                self.train("out", "--max-steps", "8", *words, "--resume", "none", "--overwrite")
                self.assertEqual([record["step"] for record in self.metrics("out", "eval")], evaluated)
                self.assertEqual(self.checkpoints("out"), saved)

    def test_best_model(self):
        # The learning rate rises until the last model is worse than the model of the best evaluation.
        words = ["--max-steps", "24", "--lr", "1", "--warmup-steps", "24",
                 "--eval-strategy", "steps", "--eval-steps", "1", "--save-strategy", "steps", "--save-steps", "6",
                 "--load-best-model-at-end", "--save-total-limit", "1"]
        self.train("out", *words, job=JOB + ["--eval-dataset", "eval.jsonl"])
        losses = {record["step"]: record["eval_loss"] for record in self.metrics("out", "eval")}
        best = min(losses, key=losses.get)
        self.assertNotEqual(best, 24)
        summary = self.json_of("out", "summary.json")
        self.assertEqual((summary["best_step"], summary["eval_loss"]), (best, losses[best]))
        self.assertEqual(self.checkpoints("out"), sorted({best, 24}))
        again = json.loads(self.succeeds("eval", "--model", "out/model", "--eval-dataset", "eval.jsonl", "--json"))
        self.assertEqual(again["eval_loss"], losses[best])

    def test_best_model_by_f1(self):
        self.train("out", "--load-best-model-at-end", "--metric-for-best-model", "f1", "--epochs", "4")
        scores = {record["step"]: record["f1"] for record in self.metrics("out", "eval")}
        summary = self.json_of("out", "summary.json")
        self.assertEqual(summary["best_step"], max(scores, key=scores.get))  # the first step with the highest score
        self.assertEqual(summary["f1"], max(scores.values()))

    def test_seeds(self):
        self.train("a")
        self.train("b")
        self.assert_same_results("a", "b")
        self.train("c", "--seed", "43")
        self.assertNotEqual(self.read("a", "model", "model.safetensors"), self.read("c", "model", "model.safetensors"))
        self.train("d", "--no-shuffle")
        self.assertNotEqual(without_timing(self.path("a", "metrics.jsonl")), without_timing(self.path("d", "metrics.jsonl")))


class Strategies(TinyJobTest):
    def test_activation_checkpointing_changes_nothing(self):
        for name, job in [("bloom", EVALUATED), ("gpt", GPT)]:
            with self.subTest(name=name):
                self.train(name, job=job)
                peaks = [self.json_of(name, "summary.json")["ledger_peak_bytes"]["activations"]]
                for recomputed in ["1", "block", "mlp", "attention", "block=1,mlp=1"]:
                    self.train("other", "--activation-checkpointing", recomputed, "--overwrite", job=job)
                    self.assert_same_results(name, "other")
                    peaks.append(self.json_of("other", "summary.json")["ledger_peak_bytes"]["activations"])
                self.assertLess(max(peaks[1:]), peaks[0])

    def test_objectives(self):
        rows = questions(22, 1)
        targets = {}
        for objective in ["completion", "causal_lm", "separate"]:
            self.train(objective, "--objective", objective)
            first, last = self.metrics(objective, "eval")[0], self.metrics(objective, "eval")[-1]
            self.assertLess(last["eval_loss"], first["eval_loss"], objective)
            targets[objective] = sum(record["num_targets"] for record in self.metrics(objective, "train"))
        tokens = {o: sum(r["num_tokens"] for r in self.metrics(o, "train")) for o in targets}
        num_answers = 3 * len(rows)  # in three epochs
        answer_tokens, bare_tokens = (
            3 * sum(len(self.succeeds("tokenize", "--tokenizer", "tok", "--prompt", space + row["answers"]["text"][0]).split())
                    for row in rows) for space in (" ", ""))
        # completion: a sample is the prompt, " {answer}" and the end token. All tokens after the prompt are targets.
        # causal_lm: a sample has the same tokens. All tokens except the first are targets.
        # separate: a sample is only the prompt. The targets are the tokens of "{answer}".
        self.assertEqual(targets["causal_lm"], tokens["causal_lm"] - num_answers)
        self.assertEqual(targets["completion"], answer_tokens + num_answers)
        self.assertEqual(targets["separate"], bare_tokens)
        self.assertEqual(tokens["completion"], tokens["separate"] + answer_tokens + num_answers)

    def test_truncations(self):
        """With --truncation context, no sample loses tokens of its answer. With --truncation right, long samples lose
        tokens of their answers."""
        self.train("whole")
        for truncation in ["context", "right"]:
            self.train(truncation, "--truncation", truncation, "--max-length", "46")
        targets = {out: self.json_of(out, "summary.json")["num_targets"] for out in ["whole", "context", "right"]}
        self.assertEqual(targets["context"], targets["whole"])
        self.assertLess(targets["right"], targets["whole"])
        self.assertLess(self.json_of("context", "summary.json")["num_tokens"],
                        self.json_of("whole", "summary.json")["num_tokens"])

    def test_gpt_from_flags(self):
        self.train("out", "--dropout", "0.3", job=GPT + ["--eval-dataset", "eval.jsonl", "--eval-generation"])
        config = self.json_of("out", "model", "config.json")
        self.assertEqual((config["model_type"], config["vocab_size"]), ("gpt", 400))
        again = json.loads(self.succeeds("eval", "--model", "out/model", "--eval-dataset", "eval.jsonl", "--json"))
        self.assertEqual(again["eval_loss"], self.json_of("out", "summary.json")["eval_loss"])
        self.train("dry", "--dropout", "0", job=GPT)
        self.assertNotEqual(self.read("out", "model", "model.safetensors"), self.read("dry", "model", "model.safetensors"))

    def test_the_vocabulary_of_gpt_is_the_tokenizers(self):
        job = GPT[:GPT.index("--vocab-size")]
        self.train("out", job=job)
        self.assertEqual(self.json_of("out", "model", "config.json")["vocab_size"], len(self.vocabulary()))

    def vocabulary(self):
        tokenizer = self.json_of("tok", "tokenizer.json")
        return set(tokenizer["model"]["vocab"]) | {token["content"] for token in tokenizer["added_tokens"]}

    def test_accumulation(self):
        """Batch size 4, and batch size 2 with 2 micro-batches per step, have the same samples in the same steps. Only
        the order of sums differs."""
        self.train("whole", "--batch-size", "4", job=JOB)
        self.train("parts", "--batch-size", "2", "--grad-accum", "2", job=JOB)
        pairs = list(zip(self.metrics("whole", "train"), self.metrics("parts", "train"), strict=True))
        # A sum of about 200 fp32 terms has a relative error of up to 200 * 2^-23 = 2.4e-5. Adam may amplify this error
        # where gradients are near 0, so the limit for all steps is larger: 2e-4. The first loss is computed before any
        # update, so its limit is smaller: 1e-6.
        for whole, parts in pairs:
            self.assertEqual((whole["num_targets"], whole["num_tokens"]), (parts["num_targets"], parts["num_tokens"]))
            self.assertTrue(math.isclose(whole["loss"], parts["loss"], rel_tol=2e-4), (whole, parts))
        self.assertTrue(math.isclose(pairs[0][0]["loss"], pairs[0][1]["loss"], rel_tol=1e-6))

    def test_micro_batches_by_tokens(self):
        """The run, its summary and a plan report how full the micro-batches are. Without shuffling, the samples keep
        their order, and the micro-batches are less full."""
        words = [*JOB, "--batch-tokens", "100", "--max-length", "100"]
        used = {}
        for shuffle in "--shuffle", "--no-shuffle":
            self.train("out", *words[len(JOB):], shuffle, "--resume", "none", "--overwrite", job=JOB)
            code, _, err = self.run_tessera("plan", *words, shuffle)
            self.assertEqual(code, 0, err)
            summary = self.json_of("out", "summary.json")
            used[shuffle] = summary["batch_tokens_used"]
            self.assertEqual(json.loads(self.succeeds("plan", *words, shuffle, "--json"))["batch_tokens_used"], used[shuffle])
            number = round(summary["num_tokens"] / summary["epoch"] / 100 / used[shuffle])
            self.assertIn(f"Micro-batches per epoch: {number}, filled to {100 * used[shuffle]:.1f} % of --batch-tokens 100\n",
                          err)
        self.assertLess(used["--no-shuffle"], used["--shuffle"])
        self.assertLessEqual(used["--shuffle"], 1)

    def test_plan_is_what_happens(self):
        for words in [[], ["--activation-checkpointing", "block", "--batch-size", "3"], ["--objective", "causal_lm"]]:
            with self.subTest(words=words):
                self.train("out", *words, "--resume", "none", "--overwrite")
                summary = self.json_of("out", "summary.json")
                plan = json.loads(self.succeeds("plan", *EVALUATED, *words, "--json"))
                self.assertEqual(plan["num_parameters"], summary["num_parameters"])
                for category, measured in summary["ledger_peak_bytes"].items():
                    if category in ("workspace", "total"):  # plan_test.py compares them
                        continue
                    planned = max(phase[category] for phase in plan["first_rank"]["device"].values())
                    self.assertEqual(planned, measured, category)


class Models(TinyJobTest):
    def test_the_saved_model_is_the_trained_one(self):
        self.train("out")
        summary = self.json_of("out", "summary.json")
        words = ["--model", "out/model", "--eval-dataset", "eval.jsonl", "--eval-generation", "--max-new-tokens", "5"]
        out = json.loads(self.succeeds("eval", *words, "--json", "--output-dir", "measured"))
        for key in ["eval_loss", "exact_match", "f1"]:
            self.assertEqual(out[key], summary[key])
        self.assertEqual(self.json_of("measured", "eval.json"), out)
        answers = self.json_of("measured", "predictions.json")
        rows = questions(7, 2)
        self.assertEqual(sorted(answers), sorted(row["id"] for row in rows))
        for row in rows:  # `generate` gives the same answers, one question at a time
            answer = self.succeeds("generate", "--model", "out/model", "--max-new-tokens", "5", "--question",
                                   row["question"], "--context", row["context"])
            self.assertEqual(answer.strip(), answers[row["id"]].strip())

    def test_generate(self):
        self.train("out", job=JOB)
        asked = ["--question", "Where does Gwen live?", "--context", "Gwen lives in Oslo."]
        answer = json.loads(self.succeeds("generate", "--model", "out/model", *asked, "--json"))
        prompt = "Question: Where does Gwen live? Context: Gwen lives in Oslo. Answer:"
        whole = json.loads(self.succeeds("generate", "--model", "out/model", "--prompt", prompt, "--json"))
        self.assertEqual(whole["ids"], answer["ids"])
        self.assertEqual(whole["text"].removeprefix(" "), answer["text"])
        ids = self.succeeds("tokenize", "--tokenizer", "out/model", "--prompt", prompt).split()
        self.assertEqual(answer["num_prompt_tokens"], len(ids))
        self.assertLessEqual(len(answer["ids"]), 50)

    def test_memorises(self):
        """After 80 epochs on one question, the model generates the answer."""
        self.write("one.jsonl", jsonl(questions(22, 1)[:1]))
        self.train("out", "--dataset", "one.jsonl", "--eval-dataset", "one.jsonl", "--epochs", "80", "--logging-steps=0",
                   "--save-strategy=no", "--eval-strategy=no", "--eval-before")
        row = questions(22, 1)[0]
        answer = self.succeeds("generate", "--model", "out/model", "--question", row["question"], "--context", row["context"])
        self.assertEqual(answer, row["answers"]["text"][0] + "\n")

    def test_export_is_the_saved_model(self):
        self.train("out", "--save-total-limit", "0")
        for dtype in ["fp32", "bf16"]:
            self.succeeds("export", *JOB[:6], "--checkpoint", "out/checkpoint-18", "--output-dir", "exported",
                          "--save-dtype", dtype)
            if dtype == "fp32":
                names = sorted(os.listdir(self.path("out", "model")))
                self.assertEqual(sorted(os.listdir(self.path("exported"))), names)
                for name in names:
                    self.assertEqual(self.read("exported", name), self.read("out", "model", name), name)
        self.assertIn("the model of step 18", self.succeeds("export", "--model", "out/model", "--checkpoint", "out",
                                                            "--output-dir", "newest"))
        self.succeeds("export", "--model", "out/model", "--checkpoint", "out/checkpoint-6", "--output-dir", "earlier")
        loss = json.loads(self.succeeds("eval", "--model", "earlier", "--eval-dataset", "eval.jsonl", "--json"))["eval_loss"]
        self.assertEqual(loss, self.metrics("out", "eval")[0]["eval_loss"])

    @unless_sanitized
    def test_export_holds_one_unit_at_a_time(self):
        """Each block has 12.6 MB of parameters. The peak memory of an export is less than 12.6 MB higher for a model
        with 12 blocks than for a model with 2 blocks. With 12 blocks, it is also less than the size of 6 blocks."""
        shape = ["--model", "gpt", "--init", "random", "--tokenizer", "tok", "--vocab-size", "400", "--hidden-size", "512",
                 "--num-heads", "2", "--ff-dim", "2048"]
        unit = 4 * 12 * 512 * 512
        peak = {}
        for layers in [2, 12]:
            words = [*shape, "--num-layers", str(layers)]
            self.succeeds("train", *words, "--dataset", "train.jsonl", "--max-steps", "1", "--save-strategy", "steps",
                          "--save-steps", "1", "--output-dir", "out", "--resume", "none", "--overwrite")
            peak[layers] = self.peak_bytes("export", *words, "--threads", "2", "--checkpoint", "out/checkpoint-1",
                                           "--output-dir", "exported")
            self.assertGreater(os.path.getsize(self.path("exported", "model.safetensors")), layers * unit)
            self.assertEqual(self.read("exported", "model.safetensors"), self.read("out", "model", "model.safetensors"))
        self.assertLess(peak[12], peak[2] + unit)
        self.assertLess(peak[12], 6 * unit)

    def peak_bytes(self, *words):
        """Runs the program. Returns its peak resident memory in bytes."""
        code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); " \
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        done = subprocess.run([sys.executable, "-c", code, PROGRAM, *words], cwd=self.folder, check=True, timeout=RUN_LIMIT_S,
                              stdout=subprocess.PIPE)
        return int(done.stdout) * 1024

    def test_export_refuses_the_configuration_of_another_model(self):
        self.train("out", "--max-steps", "2")
        self.write("other.json", json.dumps(BLOOM | {"n_head": 4}))  # the tensors have the same shapes
        self.fails(2, "num_heads", "export", "--model", "other.json", "--init", "random", "--tokenizer", "tok",
                   "--checkpoint", "out/checkpoint-2", "--output-dir", "exported")
        self.assertFalse(os.path.exists(self.path("exported")))

    def test_save_dtype(self):
        self.train("out")
        self.train("half", "--save-dtype", "bf16")
        full = read_tensors(self.path("out", "model", "model.safetensors"))
        half = read_tensors(self.path("half", "model", "model.safetensors"))
        self.assertEqual(full.keys(), half.keys())
        for name, (dtype, shape, data) in half.items():
            self.assertEqual((dtype, shape), ("BF16", full[name][1]))
            words = struct.unpack(f"<{len(data) // 2}H", data)
            for word, bits in zip(words, struct.unpack(f"<{len(words)}I", full[name][2]), strict=True):
                self.assertEqual(word, (bits + 0x7fff + ((bits >> 16) & 1)) >> 16)  # to nearest, ties to even
        config = self.json_of("half", "model", "config.json")
        self.assertIn("bfloat16", (config.get("torch_dtype"), config.get("dtype")))
        loss = json.loads(self.succeeds("eval", "--model", "half/model", "--eval-dataset", "eval.jsonl", "--json"))["eval_loss"]
        # The relative errors of the weights are at most 2^-8 and nearly independent. They change the loss by far less
        # than 1 %.
        self.assertTrue(math.isclose(loss, self.json_of("out", "summary.json")["eval_loss"], rel_tol=1e-2))

    def test_fine_tuning_continues_from_a_saved_model(self):
        self.train("out")
        words = ["--model", "out/model", "--dataset", "train.jsonl", "--eval-dataset", "eval.jsonl", "--eval-before",
                 "--lr", "1e-3", "--threads", "1"]
        self.succeeds("train", *words, "--output-dir", "more")
        summary, first = self.json_of("more", "summary.json"), self.json_of("out", "summary.json")
        self.assertEqual(summary["eval_loss_before"], first["eval_loss"])
        self.assertLess(summary["eval_loss"], first["eval_loss"])


if __name__ == "__main__":
    main()
