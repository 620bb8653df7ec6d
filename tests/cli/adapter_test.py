"""LoRA adapters: training, resuming, evaluating, exporting, merging; wrong folders and wrong settings."""
import json
import os
import shutil
import struct

from tessera_cli import PROGRAM, main
from tiny_job import INPUT, JOB, USAGE, TinyJobTest, read_tensors, safetensors

RUN = [*JOB, "--eval-dataset", "eval.jsonl", "--max-steps", "6", "--save-strategy", "steps", "--save-steps", "3",
       "--save-total-limit", "0", "--precision", "fp32", "--lr", "1e-2", "--lr-schedule", "constant"]
LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
LORA = ["--adapter", "lora", "--lora-r", "4", "--lora-dropout", "0.1"]


class Adapter(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.succeeds("train", *RUN, "--output-dir", "first", "--max-steps", "2")
        self.base = ["--init", "pretrained", "--model", "first/model"]

    def train(self, output, *words):
        self.succeeds("train", *RUN, *self.base, "--output-dir", output, *words)

    def loss(self, *words):
        lines = self.succeeds("eval", *words, "--eval-dataset", "eval.jsonl", "--precision", "fp32", "--json")
        return json.loads(lines.splitlines()[-1])["eval_loss"]

    def weights(self, folder):
        return read_tensors(self.path(folder, "adapter_model.safetensors"))

    def test_an_adapter_is_trained_resumed_exported_and_merged(self):
        self.train("out", *LORA)
        summary = self.json_of("out", "summary.json")
        self.assertLess(summary["num_trainable_parameters"], summary["num_parameters"] / 2)
        names = set(self.weights("out/model"))
        self.assertTrue(all(name.startswith("base_model.model.transformer.h.") for name in names), names)
        self.assertEqual({name.split(".")[-2] for name in names}, {"lora_A", "lora_B"})
        config = self.json_of("out/model", "adapter_config.json")
        self.assertEqual(config["peft_type"], "LORA")
        self.assertEqual(config["base_model_name_or_path"], os.path.realpath(self.path("first/model")))
        self.assertEqual(config["target_modules"], ["dense", "dense_4h_to_h", "dense_h_to_4h", "query_key_value"])
        self.assertFalse(os.path.exists(self.path("out/model/config.json")))

        # Checkpoints hold only the adapter, its moments and references to the base.
        checkpoint = read_tensors(self.path("out/checkpoint-6", "rank-00000-of-00001.safetensors"))
        self.assertFalse([name for name in checkpoint if name.startswith("frozen/")])

        # A resumed run gives the same adapter as a run without a break.
        self.train("half", *LORA, "--max-steps", "3")
        self.train("half", *LORA)
        self.assertEqual(self.weights("half/model"), self.weights("out/model"))

        # The adapter beside the base, the checkpoint, the export and the merged model are one model.
        loss = self.metrics("out", "eval")[-1]["eval_loss"]
        self.assertAlmostEqual(self.loss("--model", "first/model", "--adapter", "out"), loss, 9)
        self.assertAlmostEqual(self.loss("--model", "out/checkpoint-6"), loss, 9)
        self.succeeds("export", "--checkpoint", "out", "--output-dir", "exported")
        self.assertEqual(self.weights("exported"), self.weights("out/model"))
        self.succeeds("export", "--checkpoint", "out", "--merge", "--output-dir", "merged")
        self.assertAlmostEqual(self.loss("--model", "merged"), loss, 5)
        _, _, err = self.run_tessera("export", "--model", "first/model", "--adapter", "out", "--merge", "--save-dtype", "bf16",
                                     "--output-dir", "rounded")
        self.assertIn("The largest rounding error is", err)
        self.succeeds("export", "--model", "first/model", "--adapter", "out", "--merge", "--output-dir", "merged2")
        self.assertEqual(read_tensors(self.path("merged", "model.safetensors")),
                         read_tensors(self.path("merged2", "model.safetensors")))
        words = ["--prompt", "Arlo lives in", "--max-new-tokens", "4"]
        self.assertEqual(self.succeeds("generate", "--model", "merged", *words),
                         self.succeeds("generate", "--model", "first/model", "--adapter", "out/model", *words))

        # Training continues an adapter, and begins with its loss.
        self.train("more", "--adapter", "lora", "--init-adapter", "out", "--eval-before", "--max-steps", "1")
        self.assertAlmostEqual(self.metrics("more", "eval")[0]["eval_loss"], loss, 9)

    def test_a_base_in_4_bits(self):
        qlora = [*LORA, "--base-dtype", "nf4"]
        self.train("out", *qlora)
        checkpoint = read_tensors(self.path("out/checkpoint-6", "rank-00000-of-00001.safetensors"))
        self.assertFalse([name for name in checkpoint if "/block" in name and not name.startswith(("param", "optim"))])
        self.train("half", *qlora, "--max-steps", "3")
        self.train("half", *qlora)
        self.assertEqual(self.weights("half/model"), self.weights("out/model"))
        more = ["train", *RUN, *self.base, "--output-dir", "half", "--max-steps", "8"]
        self.fails(USAGE, "base_dtype = nf4, and this run has auto", *more, *LORA)
        self.fails(USAGE, "adapter = lora, and this run has none", *more)
        self.fails(USAGE, "adapter.r = 4, and this run has 5", *more, *qlora, "--lora-r", "5")

        # The adapter beside the base in 4 bits, the checkpoint, and the merged model in 4 bits are one model. By
        # default, the adapter is merged into the model as it was before.
        loss = self.metrics("out", "eval")[-1]["eval_loss"]
        beside = ["--model", "first/model", "--adapter", "out"]
        self.assertAlmostEqual(self.loss(*beside, "--base-dtype", "nf4"), loss, 9)
        self.assertAlmostEqual(self.loss("--model", "out/checkpoint-6"), loss, 9)
        exact = self.loss(*beside)
        self.assertGreater(abs(exact - loss), 1e-5)
        for words, expected in (([], exact), (["--base-dtype", "nf4"], loss)):
            self.succeeds("export", *beside, "--merge", *words, "--output-dir", "merged")
            self.assertAlmostEqual(self.loss("--model", "merged"), expected, 5)
            self.succeeds("export", "--checkpoint", "out", "--merge", *words, "--output-dir", "merged2")
            self.assertEqual(read_tensors(self.path("merged", "model.safetensors")),
                             read_tensors(self.path("merged2", "model.safetensors")))
            self.assertNotIn("quantization_config", self.json_of("merged2", "config.json"))
            self.succeeds("export", "--checkpoint", "out", "--model", "first/model", "--merge", *words, "--output-dir",
                          "merged3")
            self.assertEqual(read_tensors(self.path("merged", "model.safetensors")),
                             read_tensors(self.path("merged3", "model.safetensors")))
        self.fails(USAGE, "does nothing without --merge", "export", "--checkpoint", "out", "--base-dtype", "nf4",
                   "--output-dir", "x")

        # A base that is in no file is in the checkpoint.
        drawn = [*RUN, "--init", "random", *qlora]
        self.succeeds("train", *drawn, "--output-dir", "drawn")
        checkpoint = read_tensors(self.path("drawn/checkpoint-6", "rank-00000-of-00001.safetensors"))
        self.assertTrue([name for name in checkpoint if name.startswith("quantized/block")])
        self.succeeds("train", *drawn, "--output-dir", "again", "--max-steps", "3")
        self.succeeds("train", *drawn, "--output-dir", "again")
        self.assertEqual(self.weights("again/model"), self.weights("drawn/model"))
        loss = self.metrics("drawn", "eval")[-1]["eval_loss"]
        self.assertAlmostEqual(self.loss("--model", "drawn/checkpoint-6"), loss, 9)
        merge = ["export", "--checkpoint", "drawn", "--merge", "--output-dir", "merged4"]
        self.fails(USAGE, "has only the weights in 4 bits", *merge)
        self.succeeds(*merge, "--base-dtype", "nf4")
        self.assertAlmostEqual(self.loss("--model", "merged4"), loss, 5)

    def test_weights_in_4_bits_are_not_trained(self):
        self.fails(USAGE, "Add --adapter lora", "train", *RUN, *self.base, "--base-dtype", "nf4")
        packed = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../parity/data/llama_qlora")
        self.fails(USAGE, "in 4 bits, which cannot be trained", "plan", "--model", packed, "--max-length", "16")
        with open(os.path.join(packed, "config.json")) as file:
            config = json.load(file)
        for key, value in (("bnb_4bit_quant_type", "fp4"), ("bnb_4bit_use_double_quant", False),
                           ("quant_method", "gptq"), ("llm_int8_skip_modules", [3])):
            changed = {**config, "quantization_config": {**config["quantization_config"], key: value}}
            os.makedirs(self.path("other"), exist_ok=True)
            with open(self.path("other/config.json"), "w") as file:
                json.dump(changed, file)
            self.fails(INPUT, f'"{key}" of "quantization_config" is', "plan", "--model", "other", "--adapter", "lora",
                       "--max-length", "16")

        # The files decide which layers are in 4 bits.
        def plan_with(replaced):
            tensors = read_tensors(os.path.join(packed, "model.safetensors"))
            before = read_tensors(os.path.join(packed, "before_quantization.safetensors"))
            tensors = {name: tensor for name, tensor in tensors.items() if not any(part in name for part in replaced)}
            tensors |= {name: tensor for name, tensor in before.items()
                        if name.endswith(".weight") and any(part in name for part in replaced)}
            os.makedirs(self.path("mixed"), exist_ok=True)
            shutil.copy(os.path.join(packed, "config.json"), self.path("mixed/config.json"))
            with open(self.path("mixed/model.safetensors"), "wb") as file:
                file.write(safetensors(tensors))
            return ["plan", "--model", "mixed", "--adapter", "lora", "--max-length", "16", "--precision", "fp32",
                    "--device", "cpu", "--json"]

        def bytes_of(command):
            return json.loads(self.succeeds(*command))["first_rank"]["device"]["step"]["parameters"]
        some, all_packed = bytes_of(plan_with(["gate_proj", "q_proj"])), bytes_of(plan_with([]))
        self.assertEqual(some - all_packed, 4 * (272 + 64) * 64 - 3 * 8464)
        self.fails(INPUT, "no weight of a block is", *plan_with(["_proj"]))

    def evaluate(self, *words):
        return json.loads(self.succeeds("eval", "--model", "first/model", "--eval-dataset", "eval.jsonl",
                                        "--eval-generation", "--max-new-tokens", "5", "--json", *words))

    def reads_of_base(self, *adapters):
        """How often the program opens the weights of the base to evaluate these adapters."""
        env = {"LD_PRELOAD": LIBRARY, "FAULT_CALLS": "open_read",
               "FAULT_PATH": "first/model/model.safetensors", "FAULT_COUNT": self.path("count")}
        self.succeeds("eval", "--model", "first/model", "--eval-dataset", "eval.jsonl", "--adapter", *adapters, env=env)
        return int(self.read("count"))

    def test_several_adapters(self):
        """`b` has the shape of `a`. `c` and `d` have others."""
        self.train("a", *LORA)
        self.train("b", *LORA, "--lora-dropout", "0", "--seed", "2")
        self.train("c", "--adapter", "lora", "--lora-r", "8", "--modules-to-save", "ln_f", "--lora-bias", "all")
        self.train("d", *LORA, "--lora-alpha", "4", "--lora-target-modules", "dense")
        names = ["a", "b/model", "c", "d", "a"]
        alone = [self.evaluate("--adapter", name, "--output-dir", "alone") | {
            "predictions": self.json_of("alone", "predictions.json")} for name in names]
        self.assertEqual(len({result["eval_loss"] for result in alone}), 4)
        for words in [], ["--nproc", "2", "--strategy", "full_shard"], ["--nproc", "2", "--sync-module-states"]:
            report = self.evaluate("--adapter", *names, "--output-dir", "all", *words)
            self.assertEqual(self.json_of("all", "eval.json"), report)
            self.assertEqual(report["eval_data"], alone[0]["eval_data"])
            self.assertEqual([result["adapter"] for result in report["adapters"]], names)
            for i, (result, expected) in enumerate(zip(report["adapters"], alone, strict=True)):
                self.assertAlmostEqual(result["eval_loss"], expected["eval_loss"], 6 if words else 12)
                self.assertEqual(result["f1"], expected["f1"])
                self.assertEqual(self.json_of("all", f"predictions-{i + 1}.json"), expected["predictions"])
        out = self.succeeds("eval", "--model", "first/model", "--eval-dataset", "eval.jsonl", "--adapter", "a", "c")
        for name, result in ("a", alone[0]), ("c", alone[2]):
            self.assertIn(f"{{'adapter': '{name}', 'eval_loss': {result['eval_loss']}, ", out)
            self.assertRegex(out, rf"\| {name} +\| +{result['eval_loss']:.4f} \| +[0-9.]+ \|\n")

        # Adapters of one shape read the base once.
        once = self.reads_of_base("a")
        self.assertGreater(once, 0)
        self.assertEqual(self.reads_of_base("a", "b", "a"), once)
        self.assertGreater(self.reads_of_base("a", "c"), once)

        # generate gives the texts of each adapter.
        self.write("prompts.jsonl", json.dumps({"prompt": "Arlo lives"}) + "\n" + json.dumps({"prompt": "Bryn"}) + "\n")
        words = ["generate", "--model", "first/model", "--max-new-tokens", "4", "--temperature", "2", "--seed", "3"]
        lines = [json.loads(line) for line in
                 self.succeeds(*words, "--prompts", "prompts.jsonl", "--adapter", *names).splitlines()]
        expected = [{"adapter": name} | json.loads(line) for name in names for line in
                    self.succeeds(*words, "--prompts", "prompts.jsonl", "--adapter", name).splitlines()]
        self.assertEqual(lines, expected)
        texts = self.succeeds(*words, "--prompt", "Cora", "--adapter", "a", "c")
        self.assertEqual(texts, "".join(f"{name}:\n" + self.succeeds(*words, "--prompt", "Cora", "--adapter", name)
                                        for name in "ac"))

        # A wrong adapter is reported before the work with the others.
        shutil.copytree(self.path("c/model"), self.path("bad"))
        config = self.json_of("bad", "adapter_config.json") | {"r": 4}
        self.write("bad/adapter_config.json", json.dumps(config))
        for words in ["eval", "--eval-dataset", "eval.jsonl"], ["generate", "--prompt", "Cora"]:
            self.fails(INPUT, "of another shape", *words, "--model", "first/model", "--adapter", "a", "bad")
        for words in (["chat", "--model", "first/model", "--adapter", "a", "b"],
                      ["export", "--model", "first/model", "--adapter", "a", "b", "--merge", "--output-dir", "merged"],
                      ["train", *RUN, *self.base, "--output-dir", "e", *LORA[:2], "--init-adapter", "a", "b"]):
            self.fails(USAGE, "names 2 adapters, but only eval and generate take several", *words)

    def test_the_plan_knows_the_adapter(self):
        plan = json.loads(self.succeeds("plan", *RUN, *self.base, *LORA, "--json"))
        full = json.loads(self.succeeds("plan", *RUN, *self.base, "--json"))
        self.assertLess(plan["num_trainable_parameters"], full["num_trainable_parameters"] / 2)
        self.train("out", *LORA)
        summary = self.json_of("out", "summary.json")
        self.assertLessEqual(summary["ledger_peak_bytes"]["total"], summary["planned_peak_bytes"])

    def test_the_head_can_have_an_adapter_with_dropout(self):
        words = ["--adapter", "lora", "--lora-dropout", "0.5", "--lora-target-modules", "lm_head", "dense"]
        self.train("out", *words, "--batch-size", "2", "--grad-accum", "2")
        self.train("other", *words, "--batch-size", "4", "--grad-accum", "1")  # masks do not depend on micro-batches
        for a, b in zip(self.metrics("out", "train"), self.metrics("other", "train"), strict=True):
            self.assertAlmostEqual(a["loss"], b["loss"], 5)
        self.fails(USAGE, "which is tied to the embedding", "export", "--checkpoint", "out", "--merge", "--output-dir", "m")

    def test_a_merge_checks_the_base(self):
        self.train("out", *LORA, "--max-steps", "1")
        shutil.copytree(self.path("first/model"), self.path("base"))
        config = self.json_of("base", "config.json") | {"vocab_size": 500}
        self.write("base/config.json", json.dumps(config))
        self.fails(INPUT, "of another shape", "export", "--model", "base", "--adapter", "out", "--merge", "--tokenizer",
                   "tok", "--output-dir", "merged")

    def test_strategies_give_the_plain_run(self):
        for base in "auto", "nf4":
            self.check_strategies(["--base-dtype", base])

    def check_strategies(self, base):
        losses = []
        for output, words in [("plain", ["--batch-size", "2"]),
                              ("sharded", ["--nproc", "2", "--batch-size", "1", "--strategy", "full_shard"]),
                              ("offloaded", ["--nproc", "2", "--batch-size", "1", "--strategy", "zero3", "--offload",
                                             "optimizer,gradients,parameters", "--activation-checkpointing", "block"])]:
            self.train(output, "--adapter", "lora", "--modules-to-save", "ln_f", *words, *base, "--overwrite")
            losses.append([record["loss"] for record in self.metrics(output, "train")])
        for other in losses[1:]:
            for a, b in zip(losses[0], other, strict=True):
                self.assertAlmostEqual(a, b, 5)

    def test_wrong_settings_name_the_remedy(self):
        for words, message in [
                (["--lora-r", "8"], "does nothing without an adapter. Add --adapter lora"),
                ([*LORA, "--freeze", "h.0.*"], "--freeze: contradicts adapter"),
                ([*LORA, "--lora-target-modules", "q_proj"], "The linear layers of this model are dense"),
                ([*LORA, "--modules-to-save", "word_embeddings"], "is also the head of this model"),
                ([*LORA, "--modules-to-save", "mlp.dense_4h_to_h"], "would be trained whole, and also have an adapter"),
                ([*LORA, "--lora-target-modules", ","], "has no name"),
                ([*LORA, "--lora-target-modules", "(([a-z._0-9]+)+)+!"], "names no linear layer"),
                ([*LORA, "--lora-layers", "0-9"], "is no block of the model, which has blocks 0 to"),
                ([*LORA, "--lora-rank-pattern", "dense=0"], "is not NAME=VALUE"),
                (["--init-adapter", "first"], "because adapter is \"none\""),
                (["--adapter", "qlora"], "Use one of: none, lora")]:
            self.fails(USAGE, message, "train", *RUN, *self.base, "--output-dir", "out", *words)
        self.fails(INPUT, "is a model, and not an adapter", "eval", "--model", "first/model", "--adapter", "first/model",
                   "--eval-dataset", "eval.jsonl")
        self.fails(USAGE, "does nothing without", "train", *RUN, *self.base, "--output-dir", "out", "--use-rslora")
        self.fails(USAGE, "Write --adapter lora", "train", *RUN, *self.base, "--output-dir", "out", "--use-peft")

    def test_damaged_and_foreign_adapters_are_refused(self):
        self.train("out", *LORA, "--max-steps", "1")
        words = ["eval", "--model", "first/model", "--adapter", "bad", "--eval-dataset", "eval.jsonl"]
        self.fails(INPUT, "Give {} as the model, and add --adapter out/model".format(
            os.path.realpath(self.path("first/model"))), "eval", "--model", "out", "--eval-dataset", "eval.jsonl")

        def damage(change):
            shutil.rmtree(self.path("bad"), ignore_errors=True)
            shutil.copytree(self.path("out/model"), self.path("bad"))
            change()

        def config(**changes):
            path = self.path("bad/adapter_config.json")
            with open(path) as file:
                values = json.load(file) | changes
            with open(path, "w") as file:
                json.dump(values, file)

        def nan():
            path = self.path("bad/adapter_model.safetensors")
            with open(path, "r+b") as file:
                file.seek(-4, os.SEEK_END)
                file.write(struct.pack("<f", float("nan")))

        for change, message in [
                (lambda: os.remove(self.path("bad/adapter_model.safetensors")), "has no adapter_model.safetensors"),
                (lambda: config(use_dora=True), "DoRA"),
                (lambda: config(r=8), "of another shape"),
                (lambda: config(target_modules=["dense"]), "not of this adapter"),
                (lambda: config(target_modules=["c_attn"]), "is no adapter of this model"),
                (lambda: config(modules_to_save=["ln_f"]), "missing"),
                (nan, "contains NaN")]:
            damage(change)
            self.fails(INPUT, message, *words)
        damage(lambda: None)
        self.loss(*words[1:-2])


if __name__ == "__main__":
    main()
