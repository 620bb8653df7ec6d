"""Compares `tessera plan` with training runs: the bytes that ranks hold in memory, and the bytes that they send. Checks
that the configuration that `plan --fit` chooses fits into memory."""
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

from outputs_test import MACHINE
from tessera_cli import PROGRAM, RUN_LIMIT_S, main, unless_sanitized
from tiny_job import BLOOM, EVALUATED, FAILED, JOB, MOST_RANKS, OF_ANY_DEVICE, ON_GPU, USAGE, TinyJobTest, jsonl, questions, without_timing

MIB = 2 ** 20
SEARCHED = ["strategy", "offload", "activation_checkpointing", "batch_size", "grad_accum"]


def bytes_of(text):
    """The bytes of a text such as "1.23 MiB" or "GPU: 1.23 MiB, limit 2 GiB"."""
    number, unit = re.search(r"(?:^|: )([\d.]+) ([KMG])iB", text).groups()
    return float(number) * 2 ** (10 + 10 * "KMG".index(unit))


class PlanTest(TinyJobTest):
    def plan(self, *words):
        """The result of a plan, which ends with 4 if it exceeds a limit."""
        code, out, err = self.run_tessera("plan", *words, "--json")
        self.assertIn(code, (0, 4), err)
        plan = json.loads(out)
        self.assertEqual(plan["fits"] is False, code == 4)
        return plan

    def flags(self, configuration):
        return [word for name in SEARCHED for word in ("--" + name.replace("_", "-"), str(configuration[name]))]


class Ledger(PlanTest):
    def peaks(self, ledger):
        """{category: bytes}: each category's highest value in all phases, as in summary.json."""
        return {category: max(phase[category] for phase in ledger.values()) for category in ledger["step"]}

    def peaks_of_new(self, ledger):
        """Like peaks(), for a run that draws its parameters and does not resume. Such a run reads no model and no
        checkpoint. On a GPU, the plan still counts host buffers for reading them, in the phases `load` and `resume`.
        These phases are therefore left out."""
        absent = ("load", "resume") if ON_GPU else ()
        return self.peaks({name: phase for name, phase in ledger.items() if name not in absent})

    def test_is_what_ranks_hold_and_send(self):
        for words in [["--nproc", "1", "--offload", "optimizer,gradients", "--save-async"],
                      ["--nproc", "1", "--offload", "optimizer:file", "--offload-dir", "files", "--save-async"],
                      # While a checkpoint is written in the background, host memory contains a copy of the states. This
                      # run evaluates at the same time.
                      ["--nproc", "2", "--strategy", "zero2", "--save-async", "--save-strategy", "steps", "--save-steps", "1",
                       "--eval-strategy", "steps", "--eval-steps", "1", "--eval-generation", "--eval-dataset",
                       "eval.jsonl", "--max-new-tokens", "3"],
                      ["--nproc", "2", "--strategy", "zero1", "--grad-accum", "2", "--offload", "optimizer:file",
                       "--offload-dir", "made/by/ranks"],
                      ["--nproc", "2", "--strategy", "full_shard", "--grad-accum", "3", "--save-async"],
                      ["--nproc", "1", "--grad-accum", "3", "--batch-tokens", "150", "--max-length", "128"],
                      ["--nproc", "2", "--strategy", "zero2", "--grad-accum", "2", "--batch-tokens", "150",
                       "--max-length", "128"],
                      ["--nproc", "4", "--strategy", "hybrid_shard", "--ranks-per-node", "2", "--eval-generation",
                       "--eval-dataset", "eval.jsonl", "--max-new-tokens", "3"]]:
            with self.subTest(words=words):
                if int(words[1]) > MOST_RANKS:
                    self.skipTest(f"needs {words[1]} ranks")
                words += ["--max-steps", "4"] + ([] if "--batch-tokens" in words else ["--batch-size", "2"])
                self.train("out", *words, "--resume", "none", "--overwrite", job=JOB)
                summary, plan = self.json_of("out", "summary.json"), self.plan(*JOB, *words)
                self.assertEqual(summary["world_size"], plan["world_size"])
                first = plan["first_rank"]
                self.assertEqual(self.peaks(first["device"]), summary["ledger_peak_bytes"])
                self.assertEqual(self.peaks_of_new(first["host"]), summary["host_ledger_peak_bytes"])
                self.assertEqual((plan["peak_bytes"], plan["step_bytes_sent"]),
                                 (summary["planned_peak_bytes"], summary["planned_step_bytes_sent"]))
                if "--save-async" in words and "--eval-generation" in words:
                    self.assertGreater(first["host"]["evaluation"]["staging"], 0)
                self.assertEqual(plan["other_ranks"] is None, plan["world_size"] == 1)
                if "--eval-dataset" in words:
                    continue
                # The run has 4 steps. If the ranks keep complete parameters between steps, the first step gathers no
                # parameters, so it may send less than the plan's step.
                sent, step = summary["bytes_sent"], plan["step_bytes_sent"]
                self.assertEqual(sent, 4 * step) if "full_shard" in words else self.assertLessEqual(sent, 4 * step)
                self.assertGreaterEqual(sent, 3 * step)

    @unittest.skipIf(MOST_RANKS < 2, "needs two ranks")
    def test_knows_what_the_first_rank_reads_for_all(self):
        """With --sync-module-states, rank 0 reads the parameters and sends them to the other ranks. The plan includes
        the staging buffers for this."""
        self.train("first", "--max-steps", "1", job=JOB)
        words = ["--model", "first/model", "--init", "pretrained", "--nproc", "2", "--strategy", "full_shard", "--max-steps",
                 "2", "--sync-module-states"]
        self.train("out", *words, job=JOB)
        summary, first = self.json_of("out", "summary.json"), self.plan(*JOB, *words)["first_rank"]
        self.assertEqual(self.peaks(first["device"]), summary["ledger_peak_bytes"])
        self.assertEqual(self.peaks(first["host"]), summary["host_ledger_peak_bytes"])
        self.assertGreater(first["device"]["load"]["staging"], 0)

    def test_same_flags_as_train(self):
        words = ["--save-steps", "2", "--save-strategy", "steps", "--save-dtype", "bf16", "--resume", "none", "--overwrite"]
        self.assertEqual(self.plan(*EVALUATED, *words, "--output-dir", "out")["num_parameters"], 13024)
        self.assertFalse(os.path.exists(self.path("out")))

    def test_models_and_worlds_that_are_not_here(self):
        words = ["--model", "bloom-176b", "--nproc", "512", "--ranks-per-node", "8", "--strategy", "full_shard", "--precision", "fp32"]
        plan = self.plan(*words)
        self.assertEqual((plan["num_parameters"], plan["world_size"]), (176247271424, 512))
        step = plan["first_rank"]["device"]["step"]
        # Each rank has 1/512 of each of the 71 units, padded to a multiple of 64 elements. The root unit has its own
        # slots: buffers for its complete parameters and gradients. These slots contain the rank's parts of the root, so
        # these parts do not count as parameters or gradients. The root has an embedding of 250880 rows, and 4 rows for
        # the weights and biases of two norms. In each array of a unit, a rank has fewer than 64 elements of padding.
        shard, root = 4 * plan["num_parameters"] / 512, 4 * (250880 + 4) * 14336 / 512
        for category, least in [("parameters", shard - root), ("gradients", shard - root), ("optimizer", 2 * shard)]:
            self.assertGreaterEqual(step[category], least)
            self.assertLessEqual(step[category], least + 2 * 4 * 64 * 71)
        self.assertLess(plan["first_rank"]["head"]["step"], step["activations"])
        self.assertGreater(plan["first_rank"]["head"]["step"], 0)
        self.assertEqual(plan["first_rank"]["pinned_bytes"], 0)
        # In a micro-batch, the gradients of every unit are reduced once. The parameters of a unit are gathered before
        # its forward and its backward pass, unless they are still in memory. At the start of the backward pass, the
        # root and the last units of the forward pass are still in memory. At the start of the next micro-batch, the
        # first units are still in memory.
        # `two`: the bytes that a rank sends for a second micro-batch. `whole`: the bytes that it sends to gather or to
        # reduce all units once.
        several = self.plan(*words, "--grad-accum", "2")
        two = several["step_bytes_sent"] - plan["step_bytes_sent"]
        whole = 4 * plan["num_parameters"] * 511 // 512
        self.assertLess(plan["step_bytes_sent"], 3 * whole)
        self.assertLess(two, plan["step_bytes_sent"])
        self.assertGreater(two, 2.9 * whole)
        many = self.plan(*words, "--grad-accum", "1000000")
        self.assertEqual(many["first_rank"]["device"], several["first_rank"]["device"])
        self.assertEqual(many["step_bytes_sent"], plan["step_bytes_sent"] + 999999 * two)
        self.assertEqual(many["step_flops"], 1e6 * plan["step_flops"])

    def test_long_rows(self):
        """Activations grow with the number of tokens in a micro-batch, and not with the square of a sample's length.
        Only the arithmetic of attention grows with this square."""
        words = ["--model", "llama-3.2-1b", "--device", "cuda", "--precision", "bf16", "--activation-checkpointing", "block"]

        def activations(tokens, length):
            plan = self.plan(*words, "--batch-tokens", str(tokens), "--max-length", str(length))
            self.assertEqual((plan["batch_size"], plan["batch_tokens"], plan["micro_batch_tokens"]), (0, tokens, tokens))
            return plan["first_rank"]["device"]["step"]["activations"], plan["micro_batch_flops"]

        (once, flops), (long, long_flops) = activations(32768, 32768), activations(131072, 131072)
        self.assertLess(abs(long / once - 4), 0.1)
        self.assertGreater(long_flops, 4.5 * flops)
        same, fewer_flops = activations(131072, 512)  # the same number of tokens in shorter samples
        self.assertEqual(same, long)
        self.assertLess(fewer_flops, long_flops / 2)
        by_samples = self.plan(*words, "--batch-size", "4", "--max-length", "32768")
        self.assertLess(by_samples["peak_bytes"] / self.plan(*words, "--batch-tokens", "131072", "--max-length", "32768")["peak_bytes"],
                        1.001)
        self.fails(2, "--max-length: 131073 tokens are more than the context of the model, 131072 tokens", "plan", *words,
                   "--max-length", "131073")

    def test_precision_of_any_machine(self):
        words = ["--model", "bloom-560m", "--device", "cuda", "--device-memory", "80GiB"]
        fp32 = self.plan(*words, "--precision", "fp32")
        for precision in [[], ["--precision", "bf16"], ["--precision", "fp16"]]:  # the default is bf16 on a GPU
            halved = self.plan(*words, *precision)["first_rank"]["device"]["step"]
            self.assertEqual(2 * halved["parameters"], fp32["first_rank"]["device"]["step"]["parameters"])
            # A 16-bit parameter holds 16 bits of its fp32 master. `master` counts the other 16 bits.
            self.assertEqual(halved["master"], halved["parameters"])
        self.assertEqual((fp32["memory_bytes"], fp32["fits"]), (80 * 2 ** 30, True))
        self.assertFalse(self.plan(*words[:-1], "1GiB")["fits"])

    def test_pinned_memory(self):
        words = ["--model", "bloom-560m", "--device", "cuda", "--device-memory", "8GiB", "--host-memory", "64GiB"]

        def pinned(*more):
            rank = self.plan(*words, *more)["first_rank"]
            self.assertGreater(rank["host_peak_bytes"], 0)
            return rank["pinned_bytes"], rank["host_peak_bytes"]

        self.assertEqual(pinned()[0], 0)
        for offload in ["optimizer"], ["optimizer,gradients"], ["optimizer:file", "--offload-dir", "."]:
            got, peak = pinned("--offload", *offload)
            self.assertEqual(got, peak)
            self.assertEqual(pinned("--offload", *offload, "--no-pin-memory"), (0, peak))
        # At most nine tenths of the host memory are pinned.
        self.assertEqual(pinned("--offload", "optimizer", "--host-memory", "4GiB")[0], 4 * 2 ** 30 // 10 * 9)
        offload = ["--offload", "optimizer", "--strategy", "full_shard", "--model", "gpt", "--vocab-size", "999"]
        self.assertEqual(self.plan(*offload, "--device", "cpu")["first_rank"]["pinned_bytes"], 0)
        for more, title in [([], "host, pinned"), (["--no-pin-memory"], "host"), (["--host-memory", "4GiB"], "host, in part pinned")]:
            self.assertIn(f"| {title} ", self.run_tessera("plan", *words, "--offload", "optimizer", *more)[1])

    def test_a_tokenizer_next_to_the_model(self):
        words = ["--model", "config.json", "--init", "random", "--dataset", "train.jsonl"]
        self.fails(3, "tokenizer.json: the model has no tokenizer.json. Give one with --tokenizer", "plan", *words)
        shutil.copy(self.path("tok", "tokenizer.json"), self.path("tokenizer.json"))
        self.plan(*words)
        self.fails(2, '--tokenizer: "bloom-560m" is the name of a shape, which has no tokenizer', "plan", "--model", "bloom-560m",
                   "--dataset", "train.jsonl")

    def test_a_file_that_is_no_shape(self):
        shape = ["--model", "gpt", "--init", "random", "--vocab-size", "9", "--hidden-size", "32768", "--num-heads", "64"]
        self.fails(2, 'the model "gpt": hidden_size is 32768, but norms support at most 16384', "plan", *shape)
        self.fails(2, 'the model "gpt": num_layers is 2147483647, but a model may have at most 100000', "plan", *shape, "--hidden-size",
                   "64", "--num-layers", "2147483647")

    def test_table(self):
        titles = r" +\| +load \| +step \| +save \| +resume \|"  # no evaluation, so no column for it
        rows = ["^compute  ", "^sent     .* by each rank per step"]
        categories = [r"\| optimizer +\|", r"\|   including head \|", r"\| activations +\| +reserved "]
        # Seven ranks save unequal parts of a unit. On GPUs, these parts go through host memory, so the ranks need
        # different amounts of host memory.
        gpu = ["--device", "cuda", "--device-memory", "8GiB"]
        two, seven = ["--nproc", "2", "--strategy", "zero2"], [*gpu, "--nproc", "7"]
        for words, more in [(["--device", "cpu", *two], [r"\| memory of each rank" + titles, r"\| device +\|", r"\| host +\|"]),
                            ([*gpu, *two, "--categories"], [r"\| each rank" + titles, *categories]),
                            (seven, [r"\| memory" + titles, r"\| rank 0, device ", r"\| rank 0, host ", r"\| others, host "]),
                            ([*seven, "--categories"], [r"\| rank 0" + titles, *categories, r"\| other ranks",
                                                        "On the other ranks, these values are different:"])]:
            out = self.succeeds("plan", *OF_ANY_DEVICE, *words)
            self.assertRegex(out, r"\Afits: a rank needs .* and the limit is .*: .* are left.*\nlimits of a rank: ")
            for row in [*more, *rows]:
                self.assertTrue(re.search(row, out, re.M), (row, out))
            self.assertEqual("including head" in out, "--categories" in words)

    def test_known_gpus(self):
        """A GPU whose data sheet is known has a memory and speeds. More of both is not slower."""
        words = ["--model", "llama-3.2-1b", "--batch-size", "8", "--max-length", "512", "--precision", "fp16"]
        step_s = {}
        for gpu in ["v100-32", "a100-40", "a100-80", "h100-80", "h200", "l40s", "rtx-4090"]:
            plan = self.plan(*words, "--machine", gpu)
            self.assertEqual((plan["device"], plan["machine"]["source"]), ("cuda", "data sheet"))
            self.assertEqual(plan["fits"], plan["peak_bytes"] <= plan["memory_bytes"])
            step_s[gpu] = plan["time"]["step_s"]
        self.assertLess(step_s["h200"], step_s["h100-80"])
        self.assertLess(step_s["h100-80"], step_s["a100-80"] / 1.5)
        self.assertLess(step_s["a100-80"], step_s["a100-40"])
        self.assertLess(step_s["a100-40"], step_s["v100-32"] / 1.5)
        # The links of a GPU are known, too.
        ranks = [*words, "--strategy", "full_shard", "--machine", "a100-80", "--nproc", "8"]
        one, two = self.plan(*ranks), self.plan(*ranks, "--ranks-per-node", "4")
        self.assertGreater(one["time"]["busy"]["network_s"], 0)
        self.assertGreater(two["time"]["step_s"], one["time"]["step_s"])
        nodes = self.plan(*words, "--strategy", "full_shard", "--machine", "a100-80", "--nodes", "2")
        self.assertEqual((nodes["world_size"], nodes["ranks_per_node"]), (16, 8))
        nodes = self.plan(*ranks, "--nodes", "2")
        self.assertEqual((nodes["world_size"], nodes["ranks_per_node"]), (8, 4))
        self.fails(2, "--nodes: 8 ranks are not 3 nodes with equally many ranks", "plan", *ranks, "--nodes", "3")
        out = self.succeeds("plan", *ranks)
        self.assertRegex(out, r"\Afits: .* are left; [0-9.]+ s per step\n")
        self.assertRegex(out, r"(?m)^energy   at most .* kJ per step: 8 GPUs of 400 W$")
        self.assertRegex(out, r"(?m)^longer   a checkpoint .* on each rank\)$")
        self.fails(2, '--machine: "h300" is neither a file nor a known GPU. Give a file', "plan", *words, "--machine", "h300")
        known = self.run_tessera("plan", *words, "--machine", "h300")[2].strip().split("one of ")[1].split(", ")
        self.assertLessEqual(set(step_s), set(known))
        pages = " ".join(self.succeeds("plan", "--help", "all").split())
        self.assertIn(f"({', '.join(known)})", pages)
        self.fails(2, "--machine: h200 has the speeds of a GPU, but the plan is for CPUs", "plan", *words[:-2], "--device", "cpu",
                   "--machine", "h200")

    def test_longer_times(self):
        """An epoch is its steps, and an evaluation its batches."""
        self.write("eval.jsonl", jsonl(questions(10, 2)))
        words = [*JOB, "--batch-size", "2", "--grad-accum", "2", "--eval-dataset", "eval.jsonl", "--eval-batch-size", "4",
                 "--machine", "h200"]
        for ranks in (1, 2):
            plan = self.plan(*words, "--nproc", str(ranks))
            samples, time = plan["train_data"]["samples"], plan["time"]
            self.assertAlmostEqual(time["epoch_s"], -(-samples // (4 * ranks)) * time["step_s"], delta=1e-9)
            evaluated = plan["eval_data"]["samples"]
            self.assertAlmostEqual(time["evaluation_s"], -(-evaluated // (4 * ranks)) * time["evaluation_batch_s"], delta=1e-9)
            self.assertGreater(time["checkpoint_s"], 0)


class Comparisons(PlanTest):
    def test_kept_plans_and_this_one(self):
        paths = []
        for batch in (1, 2, 4):
            paths.append(f"{batch}.json")
            plan = self.succeeds("plan", *JOB, "--batch-size", str(batch), "--machine", "h200", "--json")
            self.write(paths[-1], plan)
        this = [*JOB, "--batch-size", "8", "--machine", "h200"]
        for files, words, columns in ([paths[:1], this, ["1.json", "this plan", "ratio"]],
                                      [paths[:2], [], ["1.json", "2.json", "ratio"]],
                                      [paths, [], paths], [paths, this, [*paths, "this plan"]]):
            with self.subTest(files=files, words=words):
                lines = self.succeeds("plan", *words, "--compare", *files).splitlines()
                cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
                self.assertEqual(cells[0], ["", *columns])
                sizes = next(row for row in cells if row[0] == "batch_size")
                numbers = [one.split(".")[0] if "json" in one else "8" if "this" in one else "" for one in columns]
                self.assertEqual(sizes[1:], numbers)
                self.assertNotIn("model", [row[0] for row in cells])
                memory = next(row for row in cells if row[0] == "device memory")
                sizes = [bytes_of(cell) for cell in memory[1:1 + len(columns) - ("ratio" in columns)]]
                self.assertEqual(sizes, sorted(sizes))
                if "ratio" in columns:
                    self.assertAlmostEqual(float(memory[-1]), sizes[1] / sizes[0], delta=0.01 * float(memory[-1]))

    def test_what_is_no_comparison(self):
        self.write("plan.json", self.succeeds("plan", *JOB, "--json"))
        self.write("other.json", "{}")
        self.fails(2, "--compare: needs a second plan to compare with. Give two files, or the settings of a run", "plan",
                   "--compare", "plan.json")
        self.fails(3, "other.json: is not a plan. Write one with tessera plan … --json > FILE", "plan", "--compare",
                   "plan.json", "other.json")
        self.fails(2, "--compare: prints a table, not JSON", "plan", "--compare", "plan.json", "plan.json", "--json")
        self.fails(2, "--svg: draws the plan of a run, but the command has no --model", "plan", "--compare", "plan.json",
                   "plan.json", "--svg", "out.svg")
        self.fails(2, "plan: needs --model or --compare", "plan")


class Fused(PlanTest):
    def test_only_within_the_limits_of_the_kernels(self):
        """With four query heads per head of keys and values, a micro-batch may have at most 3 * 2^19 tokens. A run does
        not fuse micro-batches that have more tokens together."""
        for grad_accum, fused in [(2, True), (24, True), (25, False), (2147483647, False)]:
            plan = self.plan("--device", "cuda", "--model", "llama-3.2-1b", "--device-memory", "1000TiB", "--max-length",
                             "2048", "--batch-size", "32", "--grad-accum", str(grad_accum))
            self.assertEqual(plan["fused_micro_batches"], fused)
            self.assertEqual(plan["micro_batch_tokens"], 32 * 2048 * (grad_accum if fused else 1))


class Fit(PlanTest):
    def noted(self, *words):
        """What a run prints, its notes included."""
        code, out, err = self.run_tessera(*words)
        self.assertEqual(code, 0, err)
        return out + err

    def test_fused_micro_batches(self):
        """The search knows that a GPU runs the micro-batches of a step as one if the memory suffices."""
        words = ["--device", "cuda", "--model", "llama-3.2-1b", "--max-length", "512", "--batch-size", "2", "--grad-accum", "8",
                 "--machine", "a100-80"]
        roomy = self.plan(*words, "--fit", "70GiB")
        self.assertTrue(roomy["fused_micro_batches"])
        for limit in ("70GiB", "24GiB", "20GiB", "12GiB"):
            plan = self.plan(*words, "--fit", limit)
            best = plan["fit"]["best"]
            self.assertEqual(best["device_peak_bytes"], plan["first_rank"]["device_peak_bytes"])
            self.assertAlmostEqual(best["step_s"], plan["time"]["step_s"], delta=1e-9)
        off = self.plan(*words, "--fit", "70GiB", "--fuse-micro-batches", "off")
        self.assertFalse(off["fused_micro_batches"])
        self.assertGreater(off["time"]["step_s"], roomy["time"]["step_s"])

    def test_a_run_that_chooses(self):
        """train --fit runs what plan --fit finds, records it, and keeps it when it continues. With less memory, it says what
        changes. A run never holds more than it may."""
        words = [*JOB, "--batch-size", "4", "--grad-accum", "2", "--save-steps", "2", "--save-strategy", "steps", "--output-dir", "out"]
        roomy = self.plan(*words)["first_rank"]["device_peak_bytes" if ON_GPU else "peak_bytes"]
        plan = self.plan(*words, "--fit", str(roomy - 1000) + "B")
        self.assertNotEqual([plan[name] for name in SEARCHED], [4, 2, "none", "none", "no_shard"])
        fit = ["--fit", str(roomy - 1000) + "B"]
        out = self.noted("train", *words, *fit, "--max-steps", "2")
        self.assertRegex(out, "Fastest configuration that fits: .* s per step on " + ("NVIDIA" if ON_GPU else "a CPU"))
        summary, config = self.json_of("out", "summary.json"), self.read("out", "resolved-config.toml").decode()
        for name in SEARCHED:
            value = plan[name]
            self.assertRegex(config, rf"(?m)^{name} = {re.escape(json.dumps(value))} ")
        self.assertIn('fit = "0" ', config)
        if not ON_GPU:  # there, this counts host memory too
            self.assertLess(summary["planned_peak_bytes"], roomy)
        # The file starts the same run again, without a search.
        os.rename(self.path("out", "resolved-config.toml"), self.path("same.toml"))
        again = self.noted("train", "same.toml", "--output-dir", "same", "--resume", "none")
        self.assertNotIn("Fastest", again)
        self.assertEqual(self.read("same", "model", "model.safetensors"), self.read("out", "model", "model.safetensors"))
        for name in ("model", "summary.json"):
            path = self.path("out", name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        out = self.noted("train", *words, *fit, "--max-steps", "4")
        self.assertIn("The run keeps its configuration: ", out)
        for name in ("model", "summary.json"):
            path = self.path("out", name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
        self.fails(4, "--fit: no configuration fits into 1.00 MiB", "train", *words, "--fit", "1MiB", "--max-steps", "8")
        if MOST_RANKS < 2:
            self.skipTest("needs two ranks")
        out = self.noted("train", *words, "--fit", "--nproc", "2", "--batch-size", "2", "--max-steps", "6")
        self.assertRegex(out, "The checkpoint's run had another configuration: .*, with 1 rank. The state is the same")

    def test_automatic_parts(self):
        words = ["--model", "bloom-560m", "--device", "cpu", "--max-length", "64", "--disk", "100GiB", "--offload-dir", "files",
                 "--batch-size", "4", "--offload"]
        most, least = (self.plan(*words, offload)["peak_bytes"] for offload in ("none", "optimizer:file"))
        for limit, offload in [(most, "none"), ((most + least) // 2, r"optimizer:file=\d+"), (least, "optimizer:file")]:
            chosen = self.plan(*words, "optimizer:file=auto", "--device-memory", f"{limit}B")
            self.assertRegex(chosen["offload"], f"^{offload}$")
            self.assertEqual((chosen["fits"], chosen["batch_size"], chosen["grad_accum"]), (True, 4, 1))
        self.fails(2, "--offload: auto for parameters needs a run that is planned", "eval", "--model", "config.json", "--init",
                   "random", "--tokenizer", "tok", "--eval-dataset", "train.jsonl", "--strategy", "full_shard", "--offload",
                   "parameters=auto")

    def test_a_limit_of_memory_holds(self):
        """A run that is planned to fit runs in exactly this memory, on every rank; with one byte less, it is refused."""
        source = random.Random(3)
        for turn in range(6):
            ranks = source.randint(1, min(3, MOST_RANKS))
            strategy = source.choice(["zero1", "zero2", "shard_grad_op", "full_shard"] if ranks > 1 else ["no_shard"])
            offload = source.choice(["none", "optimizer=1", "optimizer,gradients=1", "optimizer:file"])
            words = [*JOB, "--max-steps", "2", "--nproc", str(ranks), "--strategy", strategy, "--offload", offload,
                     "--activation-checkpointing", source.choice(["none", "1", "block", "mlp,attention=1"]),
                     "--batch-size", str(source.randint(1, 3)), "--grad-accum", str(source.randint(1, 2)),
                     "--save-strategy", source.choice(["no", "epoch"]), "--fuse-micro-batches", "off"]
            if ":file" in offload:
                words += ["--offload-dir", "files"]
            with self.subTest(words=words):
                plan = self.plan(*words)
                limited = "device_peak_bytes" if ON_GPU else "peak_bytes"
                peak = max(plan[name][limited] for name in ("first_rank", "other_ranks") if plan[name])
                self.succeeds("train", *words, "--device-memory", f"{peak}B", "--output-dir", f"fits-{turn}")
                self.fails(4, "the run needs", "train", *words, "--device-memory", f"{peak - 1}B", "--output-dir", "out")

    WORDS = ["--device", "cuda", "--model", "bloom-560m", "--nproc", "4", "--grad-accum", "2", "--max-length", "256"]

    def test_the_fastest_that_fits(self):
        words = [*self.WORDS[:6], "--max-length", "256"]
        unlimited = self.plan(*words, "--fit", "1000GiB")
        self.assertIsNone(unlimited["fit"]["with_next_gib"])
        self.assertEqual(unlimited["batch_size"], 4)
        limit = 4 * 2 ** 30
        plan = self.plan(*words, "--fit", "4GiB")
        best, others = plan["fit"]["best"], plan["fit"]["runners_up"]
        self.assertEqual(best["batch_size"] * best["grad_accum"], 4)
        for found in [best, *others, plan["fit"]["with_next_gib"]]:
            again = self.plan(*words, *self.flags(found), "--machine", "h200", "--device-memory", "4GiB")
            self.assertEqual(again["first_rank"]["device_peak_bytes"], found["device_peak_bytes"])
            self.assertAlmostEqual(again["time"]["step_s"], found["step_s"], delta=1e-9)
        self.assertTrue(others)
        for other in others:
            self.assertGreaterEqual(other["step_s"], 0.975 * best["step_s"])
            self.assertLessEqual(other["device_peak_bytes"], limit)
        if not ON_GPU:  # otherwise the machine is known
            self.assertEqual(plan["fit"]["machine"], {"name": "NVIDIA H200", "source": "assumed"})
        more = plan["fit"]["with_next_gib"]
        self.assertLess(more["step_s"], best["step_s"])
        self.assertTrue(limit < more["device_peak_bytes"] <= limit + 2 ** 30)
        out = self.succeeds("plan", *words, "--fit", "4GiB").splitlines()
        self.assertRegex(out[0], "^fits: a rank needs .* of GPU memory, and the limit is 4.00 GiB: .* are left")
        self.assertRegex(out[1], r"^limits of a rank: GPU memory 4.00 GiB \(--fit\); not checked: host memory \(needs .*\), disk space")
        self.assertTrue(out[2].startswith(f"fastest configuration: {best['strategy']}, "), out[2])
        self.assertTrue(any(line.startswith("| with 1 GiB more ") for line in out))
        if not ON_GPU:
            self.assertTrue(any(line.startswith("The times are those of NVIDIA H200, because the speeds") for line in out))

    def test_what_the_command_line_gives_stays(self):
        for words in [["--strategy", "zero2"], ["--offload", "optimizer"], ["--activation-checkpointing", "none"],
                      ["--batch-size", "4"]]:
            name = words[0][2:].replace("-", "_")
            plan = self.plan(*self.WORDS, *words, "--fit", "7GiB")
            self.assertEqual(str(plan[name]).removesuffix(":host"), words[1])
            for other in plan["fit"]["runners_up"]:
                self.assertEqual(other[name], plan[name])

    def test_the_memory_of_a_cpu_is_its_hosts(self):
        words = ["--device", "cpu", "--model", "bloom-560m", "--max-length", "256"]
        plan = self.plan(*words, "--fit", "12GiB")
        self.assertEqual(plan["offload"], "none")
        self.assertEqual(plan["memory_bytes"], 12 * 2 ** 30)
        self.fails(4, "--fit: no configuration fits into 6.00 GiB", "plan", *words, "--fit", "6GiB", "--disk", "1MiB")
        files = self.plan(*words, "--fit", "6GiB", "--disk", "20GiB")
        self.assertIn("optimizer:file", files["offload"])
        self.assertLessEqual(files["peak_bytes"], 6 * 2 ** 30)
        offloaded = [*words, "--offload", "optimizer"]
        self.assertFalse(self.plan(*offloaded, "--device-memory", "6GiB")["fits"])

    def test_memory_of_the_host_and_the_disk(self):
        """The plan that --fit chooses also fits into the host memory and the disk. The ranks of a node share both."""
        words = ["--device", "cuda", "--model", "bloom-7b1", "--max-length", "256", "--fit", "32GiB"]
        one = self.plan(*words, "--host-memory", "120GiB", "--disk", "1MiB")
        self.assertEqual(one["host_memory_bytes"], 120 * 2 ** 30)
        self.assertLessEqual(one["first_rank"]["host_peak_bytes"], 120 * 2 ** 30)
        self.assertGreater(one["first_rank"]["host_peak_bytes"], 24 * 2 ** 30)
        files = self.plan(*words, "--host-memory", "24GiB", "--disk", "200GiB")
        self.assertIn(":file", files["offload"])
        self.assertLessEqual(files["first_rank"]["host_peak_bytes"], 24 * 2 ** 30)
        self.assertGreater(files["first_rank"]["file_bytes"], 48 * 2 ** 30)
        self.assertLessEqual(files["first_rank"]["file_bytes"], 200 * 2 ** 30)
        # Each of four ranks gets a quarter of the host memory and of the disk.
        four = self.plan(*words, "--nproc", "4", "--host-memory", "480GiB", "--disk", "4MiB")
        self.assertEqual((four["host_memory_bytes"], four["disk_bytes"]), (120 * 2 ** 30, 2 ** 20))
        self.fails(4, "--fit: no configuration fits into 32.0 GiB: the smallest one (", "plan", *words, "--host-memory", "24GiB",
                   "--disk", "1MiB")
        out = self.succeeds("plan", *words, "--host-memory", "24GiB", "--disk", "200GiB")
        self.assertRegex(out, r"(?m)^files    .* GiB per rank, on the disk of offload$")

    def test_nothing_fits(self):
        for words in [[], ["--json"]]:
            self.fails(4, "--fit: no configuration fits into 100 MiB: the smallest one (shard_grad_op, offload ", "plan", *self.WORDS,
                       "--fit", "100MiB", *words)
        self.fails(2, "--fit: the settings that are given permit no combination of strategy and offload", "plan", *self.WORDS,
                   "--fit", "1GiB", "--strategy", "no_shard", "--offload", "optimizer")
        self.fails(2, "--device-memory: contradicts fit", "plan", *self.WORDS, "--fit", "1GiB", "--device-memory", "1GiB")

    def test_the_command_starts_the_run(self):
        """The printed command is complete: it starts a run with the settings that --fit found. Flags of the plan only are not
        in it."""
        self.write("run.toml", 'model = "config.json"\ninit = "random"\ndataset = "train.jsonl"\nlr = 1e-2\nfit = "1GiB"\n')
        words = ["plan", "run.toml", "--tokenizer=tok", "--device", "cpu", "--max-steps", "2", "--threads", "1", "--disk", "1GiB",
                 "--host-memory=1GiB", "--batch-size", "2", "--output-dir", "it's out", "--fit"]
        out = self.succeeds(*words, "5MiB", "--nproc", "1").splitlines()
        self.assertEqual(out[3], "start the run with:")
        command = out[4].strip()
        for flag in ["--fit", "--disk", "--host-memory"]:
            self.assertNotIn(flag, command)
        self.assertEqual(json.loads(self.succeeds(*words, "5MiB", "--json", "--nproc=1"))["fit"]["command"].split("--strategy")[1],
                         command.split("--strategy")[1])
        subprocess.run(command, shell=True, check=True, cwd=self.folder, timeout=RUN_LIMIT_S, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
        self.assertEqual(self.json_of("it's out", "summary.json")["steps"], 2)
        self.assertIn(b"batch_size = 2", self.read("it's out", "resolved-config.toml"))
        # What the plan cannot know is a word in capitals. --fit without a value means this machine.
        out = self.succeeds("plan", "--model", "bloom-560m", "--nproc", "16", "--ranks-per-node", "8", "--max-length", "8", "--device",
                            "cpu", "--fit")
        self.assertIn("start the run with (MODEL: the folder of bloom-560m; DATA: the training data):\n  mpirun -n 16 ", out)
        self.assertRegex(out, r"tessera train --ranks-per-node 8 --max-length 8 --device cpu --model MODEL --dataset DATA "
                              r"--output-dir runs/bloom-560m --strategy \w+ --offload \S+ --activation-checkpointing \w+ "
                              r"--batch-size \d+ --grad-accum \d+\n")
        self.assertRegex(out, r"(?m)^limits of a rank: memory .* \(this machine\), disk space .*$")
        # The name of the run is the name of the model, also with dots, and no folder that exists.
        os.makedirs(self.path("runs/v1.5-b"))
        shutil.copytree(self.path("it's out"), self.path("first.run"))
        for model, name in [("llama-3.1-8b", "llama-3.1-8b"), ("first.run", "first.run"), ("first.run/model/", "first.run"),
                            ("first.run/checkpoint-2", "first.run-checkpoint-2"), ("v1.5-b/config.json", "v1.5-b-2")]:
            if model.startswith("v1.5"):
                shutil.copytree(self.path("first.run/model"), self.path("v1.5-b"))
            out = self.succeeds("plan", "--model", model, "--max-length", "8", "--device", "cuda", "--fit", "80GB")
            self.assertIn(f" --output-dir runs/{name} ", out)

    def test_sizes_as_people_write_them(self):
        for given, shown in [("2GB", "2GB"), ("2GiB", "2GiB"), ("2.5GB", "2500MB"), ("2147483647B", "2047MiB")]:
            code, out, _ = self.run_tessera("plan", "--model", "bloom-560m", "--device", "cuda", "--device-memory", given)
            self.assertEqual(code, 4)
            self.assertRegex(out, rf" --fit {shown}\n")
        for flag in ("--fit", "--device-memory", "--host-memory", "--disk"):
            self.fails(2, f'{flag}: the size "0GB" is zero. Give a larger size', "plan", "--model", "bloom-560m", flag, "0GB")

    def test_limits_of_another_machine(self):
        """A plan for another machine uses only the limits that are given. The verdict is the first line; a plan that exceeds
        a limit of any kind ends with 4."""
        model = ["plan", "--model", "bloom-560m", "--max-length", "64"]
        unchecked = r"; not checked: host memory \(needs .*\), disk space \(needs .*\)$"
        for words, code, verdict, limits in [
            (["--device", "cuda", "--device-memory", "80GiB"], 0, "fits: .* of GPU memory", r"GPU memory 80.0 GiB \(--device-memory\)" + unchecked),
            (["--device", "cuda", "--device-memory", "4GiB"], 4, "does not fit: .* of GPU memory, .* are missing", "GPU memory 4.00 GiB"),
            (["--device", "cuda", "--device-memory", "80GiB", "--host-memory", "1GiB", "--offload", "optimizer"], 4,
             "does not fit: .* of host memory", r"GPU memory .*, host memory 1.00 GiB \(--host-memory\); not checked: disk space"),
            (["--device", "cuda", "--disk", "1GiB", "--offload", "optimizer:file", "--offload-dir", "."], 4,
             "does not fit: .* of disk space", r"GPU memory .* \(this machine\), host memory .*, disk space 1.00 GiB \(--disk\)$" if ON_GPU
             else r"disk space 1.00 GiB \(--disk\); not checked: GPU memory"),
            (["--device", "cpu", "--host-memory", "1TiB"], 0, "fits: .* of memory",
             r"memory 1.00 TiB \(--host-memory\); not checked: disk space \(needs 0 B\)$"),
            (["--device", "cpu", "--nproc", "4", "--ranks-per-node", "2"], 0, "not known: .* no limit is given", "none; not checked: memory"),
            (["--device", "cpu", "--disk", "9GiB"], None, ".* of memory", r"memory .* \(this machine\), disk space 9.00 GiB \(--disk\)$"),
        ]:
            with self.subTest(words=words):
                got, out, err = self.run_tessera(*model, *words)
                self.assertIn(got, (0, 4) if code is None else (code,), err)
                lines = out.splitlines()
                self.assertRegex(lines[0], "^" + verdict)
                self.assertRegex(lines[1], "^limits of a rank: " + limits)
                self.assertNotRegex(out, r"[{\[]\"")  # no JSON in the text
                self.assertEqual("to find a run that fits:\n" in out, code == 4 and "not checked: GPU memory" not in lines[1])


@unless_sanitized
class Advice(TinyJobTest):
    """If a run does not fit into the memory of this machine, its error shows the command of a run that fits."""

    def on_a_small_machine(self, kib, *words, shell=None, cwd=None):
        """Runs a command in its own mount namespace. The command's /proc/meminfo says that the machine has `kib` KiB of
        memory."""
        with open("/proc/meminfo", encoding="ascii") as file:
            self.write("meminfo", re.sub(r"(?m)^MemTotal:.*$", f"MemTotal: {kib} kB", file.read()))
        inside = 'mount --bind "$0" /proc/meminfo && ' + (shell or 'exec "$@"')
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
        return subprocess.run([*namespace, "sh", "-c", inside, self.path("meminfo"), PROGRAM, *words],
                              cwd=cwd or self.folder, env=clean, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=RUN_LIMIT_S)

    def setUp(self):
        super().setUp()
        probe = self.on_a_small_machine(4711, shell="grep MemTotal /proc/meminfo")
        if "4711 kB" not in probe.stdout:
            self.skipTest("needs a mount namespace: " + probe.stdout)
        self.write("config.json", json.dumps({**BLOOM, "hidden_size": 640, "n_layer": 7, "n_head": 10}))
        self.write("train.jsonl", jsonl(questions(8, 1)))
        # The offload folder must not be on a file system in memory, because its files would then use the memory that
        # they should free.
        disk = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.addCleanup(disk.cleanup)
        self.on_disk = disk.name

    def advised(self, kib, *words, cwd=None):
        done = self.on_a_small_machine(kib, *words, cwd=cwd)
        self.assertEqual(done.returncode, 4, done.stdout)
        self.assertRegex(done.stdout, r"^error: .*memory: the run needs .*Start the run with: \S*tessera ")
        command = done.stdout.strip().split("Start the run with: ")[1]
        again = self.on_a_small_machine(kib, shell=command, cwd=cwd)
        self.assertEqual(again.returncode, 0, (command, again.stdout))
        return command

    def test_is_a_command_that_fits(self):
        train = ["train", *JOB, "--max-steps", "2", "--save-strategy", "no"]
        self.train("first", *train[1:], job=[])
        out = os.path.join(self.on_disk, "it's out")
        command = self.advised(400_000, *train, "--output-dir", out)
        self.assertIn("optimizer:file", command)
        self.assertIn("/offload", command)
        self.assertEqual(without_timing(os.path.join(out, "metrics.jsonl")),
                         without_timing(self.path("first", "metrics.jsonl")))
        evaluation = ["--eval-dataset", "train.jsonl", "--eval-generation", "--threads", "1"]
        self.assertIn("--eval-batch-size ", self.advised(160_000, "eval", "--model", "first/model", *evaluation))
        self.assertIn("parameters:file", self.advised(110_000, "generate", "--model", self.path("first", "model"),
                                                      "--prompt", "a", "--threads", "1", cwd=self.on_disk))
        # The test's folder, and therefore "out", is on a file system in memory (/dev/shm). Offload to files
        # there does not free memory, so the advice asks for a folder on a disk.
        done = self.on_a_small_machine(400_000, *train, "--output-dir", "out")
        self.assertRegex(done.stdout, r"Give an --offload-dir on a disk with \d+ MiB of free space for each rank "
                                      r"\(out/offload has none\), and start the run with: ")


@unless_sanitized
class Picture(PlanTest):
    """`plan --svg` draws the memory over a step."""

    def texts(self, name):
        root = xml.etree.ElementTree.parse(self.path(name)).getroot()
        self.assertTrue(root.tag.endswith("svg"))
        return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]

    def test_its_peak_is_the_plans(self):
        for words, panels in [([], ["Memory"]), (["--device", "cuda", "--offload", "optimizer", "--save-async"], ["GPU", "Host"]),
                              (["--nproc", "2", "--strategy", "zero2", "--grad-accum", "3"], ["Memory"]),
                              (["--offload", "optimizer", "--device", "cpu"], ["Device", "Host"])]:
            words = [*OF_ANY_DEVICE, *words]
            first = self.plan(*words)["first_rank"]
            code, out, err = self.run_tessera("plan", *words, "--svg", "a.svg")
            self.assertEqual((code, err.splitlines()[-1]), (0, f"The picture is {self.path('a.svg')}"), err)
            self.assertEqual(out, self.succeeds("plan", *words))
            heads = [text for text in self.texts("a.svg") if re.match("(GPU|Memory|Device|Host): ", text)]
            self.assertEqual([head.split(":")[0] for head in heads], panels)
            for head, ledger in zip(heads, ["device", "host"]):
                self.assertLess(abs(bytes_of(head) / first[ledger]["step"]["total"] - 1), 0.006, head)  # three digits

    def test_with_a_machine_its_axis_is_time(self):
        self.write("machine.json", json.dumps(MACHINE))
        words = ["--model", "bloom-560m", "--device", "cuda"]
        self.succeeds("plan", *words, "--svg", "a.svg", "--machine", "machine.json")
        texts = self.texts("a.svg")
        for text in ["forward", "backward", "update", "milliseconds since the step began, predicted"]:
            self.assertIn(text, texts)
        self.assertTrue(any("Times: a GPU" in text for text in texts), texts)
        self.succeeds("plan", *words, "--svg", "a.svg")
        self.assertIn("changes of the activations, in their order", self.texts("a.svg"))

    def test_a_plan_that_does_not_fit_has_a_picture(self):
        code, _, _ = self.run_tessera("plan", "--model", "bloom-560m", "--device", "cuda", "--device-memory", "6GiB", "--svg", "a.svg")
        self.assertEqual(code, 4)
        self.assertIn("limit", self.texts("a.svg"))

    def test_a_file_that_cannot_be_written(self):
        code, _, err = self.run_tessera("plan", *OF_ANY_DEVICE, "--svg", "none/a.svg")
        self.assertEqual(code, FAILED, err)
        self.assertIn("none/a.svg", err)
        self.fails(USAGE, '--svg: "tok" is not a regular file', "plan", *OF_ANY_DEVICE, "--svg", "tok")


class ResidentMemory(PlanTest):
    """The resident memory that Linux counts differs from the plan by at most 5% of the plan plus a constant. The
    constant covers what only Linux counts: the program, its libraries (including MPI's), the tokenizer, the data and
    the stacks of threads. It also covers what only the plan counts: allocated pages that a run never touches."""
    CONSTANT = 32 * MIB

    def test_is_the_plan(self):
        # The model has 35 million parameters. In fp32, they take 139 MB, or 556 MB with gradients and moments.
        self.write("config.json", json.dumps({**BLOOM, "hidden_size": 640, "n_layer": 7, "n_head": 10}))
        self.write("train.jsonl", jsonl(questions(8, 1)))
        files = ["optimizer:file", "gradients:file", "parameters:file"]
        for words in [["--nproc", "1"], ["--nproc", "1", "--offload", "optimizer"],
                      ["--nproc", "1", "--strategy", "full_shard", "--offload", ",".join(files), "--offload-dir", "."],
                      ["--nproc", "2"], ["--nproc", "2", "--strategy", "zero1"],
                      ["--nproc", "2", "--strategy", "full_shard"],
                      ["--nproc", "2", "--strategy", "full_shard", "--offload", "optimizer,gradients"]]:
            with self.subTest(words=words):
                self.train("out", *words, "--batch-size", "1", "--grad-accum", "2", "--max-steps", "1", "--resume",
                           "none", "--overwrite", "--save-strategy", "no", job=JOB)
                summary = self.json_of("out", "summary.json")
                self.assertGreater(summary["num_parameters"], 30e6)
                planned, measured = summary["planned_peak_bytes"], summary["peak_memory_bytes"]
                self.assertGreater(planned, 4 * self.CONSTANT)
                self.assertLess(abs(measured - planned), 0.05 * planned + self.CONSTANT,
                                f"planned {planned / MIB:.1f} MiB, measured {measured / MIB:.1f} MiB")


if __name__ == "__main__":
    main()
