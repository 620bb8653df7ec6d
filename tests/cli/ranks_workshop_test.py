"""Every recipe of the workshop has the settings that experiments() lists, and runs to its end with a tiny model."""
import json
import os
import re

from ranks_job import RanksTest
from tessera_cli import main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPES = os.path.join(ROOT, "recipes", "workshop")
MOST_RANKS = 4  # recipes for 8 and 16 ranks run with 4, because other tests use the cores too

NONE, STATES, ALL = "none", "optimizer:host,gradients:host", "optimizer:host,gradients:host,parameters:host"
MULTI, FSDP, CUSTOM = "deepspeed/deepspeed-multi-gpu/", "fsdp/bloom/", "fsdp/custom_model/"


def experiments():
    """Returns {name of an experiment: (ranks, strategy, offload, --pin-memory, training rows,
    (batch size, accumulation), layers of gpt)}. For BLOOM, the number of layers is None."""
    table = {"deepspeed/baseline": (1, "no_shard", NONE, True, 500, (4, 4), None)}
    strategies = ["no_shard", "zero1", "zero2", "full_shard"]
    offloads = [NONE, STATES, STATES, ALL]
    single = "deepspeed/deepspeed-single-gpu/"
    for stage in range(4):
        table[f"{single}zero_{stage}"] = (1, strategies[stage], NONE, True, 500, (4, 4), None)
    table[f"{single}cpu_offloading/pinned_memory"] = (1, "zero2", STATES, True, 500, (4, 4), None)
    for stage in (1, 2, 3):
        pinned = stage != 2
        table[f"{single}cpu_offloading/zero_{stage}"] = (1, strategies[stage], offloads[stage], pinned, 500, (4, 4), None)
        stages = MULTI + "2_gpus_stages_comparison/"
        table[f"{stages}zero_{stage}"] = (2, strategies[stage], NONE, True, 1000, (4, 4), None)
        table[f"{stages}cpu_offloading/zero_{stage}"] = (2, strategies[stage], offloads[stage], pinned, 1000, (4, 4), None)
    for count in (2, 4, 8):
        table[f"{MULTI}{count}_gpus"] = (count, "zero2", STATES, True, 500 * count, (4, 4), None)
        table[f"deepspeed/deepspeed-multi-node/{count}_nodes"] = (2 * count, "zero2", STATES, True, 1000 * count, (4, 4), None)
    table[f"{FSDP}baseline"] = (1, "no_shard", NONE, True, 500, (1, 4), None)
    table[f"{CUSTOM}single_node"] = (1, "no_shard", NONE, True, 400, (1, 4), 1)
    for folder, layers in (FSDP, None), (CUSTOM, 3):
        for count in (2, 4, 8):
            table[f"{folder}multi_gpu/{count}_gpus"] = (count, "full_shard", NONE, True, 400, (1, 4), layers)
            table[f"{folder}multi_node/{count}_nodes"] = (2 * count, "full_shard", NONE, True, 400, (1, 4), layers)
    for count, layers, batch in (2, 3, 8), (4, 6, 4), (8, 12, 2), (16, 24, 1):
        table[f"{CUSTOM}weak_scaling/{count}_gpus"] = (count, "full_shard", NONE, True, 400, (batch, 1), layers)
    return table


EXPERIMENTS = experiments()
TINY = ["--tokenizer", "tok", "--init", "random", "--dataset", "train.jsonl", "--eval-dataset", "eval.jsonl",
        "--train-size", "16", "--eval-size", "4", "--max-length", "48", "--max-new-tokens", "2", "--epochs", "3",
        "--threads", "1"]
TINY_GPT = ["--hidden-size", "16", "--num-heads", "2", "--ff-dim", "32"]


def recipe(name):
    return os.path.join(RECIPES, name + ".toml")


class Workshop(RanksTest):
    def settings_of(self, *words):
        """Returns the settings that `config train` shows, as {name: value}."""
        return {name: entry["value"] for name, entry in json.loads(self.succeeds("config", "train", *words, "--json")).items()}

    def test_the_recipes_are_the_workshops(self):
        found = {os.path.relpath(os.path.join(folder, name), RECIPES)[:-len(".toml")]
                 for folder, _, names in os.walk(RECIPES) for name in names
                 if name.endswith(".toml") and os.path.basename(folder) != "shared"}
        self.assertEqual(found, set(EXPERIMENTS))
        self.assertEqual(len(found), 39)

    def test_full_sizes(self):
        for name, (ranks, _, offload, pinned, rows, batch, layers) in EXPERIMENTS.items():
            with self.subTest(experiment=name):
                s = self.settings_of(recipe(name))
                self.assertEqual((s["experiment"], s["output_dir"]), (name, "runs/workshop/" + name))
                self.assertEqual((s["nproc"], s["offload"], s["pin_memory"]), (ranks, offload, pinned))
                self.assertEqual((s["train_size"], s["eval_size"]), (rows, 50 if name.startswith("deepspeed") else 100))
                self.assertEqual((s["batch_size"], s["grad_accum"]), batch)
                self.assertEqual((s["epochs"], s["lr"], s["weight_decay"], s["max_length"]), (3, 5e-5, 0.01, 512))
                self.assertEqual(s["model"], "bloom-560m" if layers is None else "gpt")
                self.assertEqual(s["subset"], "first" if name.startswith("deepspeed") else "datasets")
                alone = name in (FSDP + "baseline", CUSTOM + "single_node")
                self.assertEqual((s["precision"], s["reduce_dtype"]),
                                 ("fp32", "auto") if alone else ("fp16", "auto" if name.startswith("deepspeed") else "fp32"))
                if s["strategy"] == "full_shard" and name.startswith("fsdp"):
                    self.assertEqual((s["backward_prefetch"], s["forward_prefetch"], s["sync_module_states"]),
                                     ("post", True, True))
                if layers is not None:
                    sizes = (1024, 8) if name == CUSTOM + "single_node" else (2048, 16)
                    self.assertEqual((s["num_layers"], s["ff_dim"], s["hidden_size"], s["num_heads"]), (layers, 8192, *sizes))

    def test_every_recipe_runs_to_its_end(self):
        for name, (ranks, strategy, offload, _, _, batch, layers) in EXPERIMENTS.items():
            with self.subTest(experiment=name):
                used = min(ranks, MOST_RANKS)
                model = ["--model", "config.json"] if layers is None else TINY_GPT
                output = os.path.join("runs", "workshop", name)
                self.succeeds("train", recipe(name), *TINY, *model, "--nproc", str(used), "--memory-log", output + "/memory:0.1")
                summary = self.json_of(output, "summary.json")
                self.assertEqual((summary["experiment"], summary["strategy"], summary["world_size"]), (name, strategy, used))
                self.assertEqual(summary["train_data"]["rows_used"], 16)
                self.assertEqual(summary["eval_data"]["rows_used"], 4)
                self.assertEqual(summary["steps"], 3 * -(-16 // (batch[0] * batch[1] * used)))
                self.assertGreater(summary["train_loss"], 0)
                self.assertEqual("exact_match" in summary, name.startswith("fsdp"))
                text = self.read(output, "resolved-config.toml").decode()
                self.assertIn(f'\noffload = "{offload}"', text)
                if layers is not None:
                    self.assertTrue(re.search(rf"^num_layers = {layers} ", text, re.M), text)
                self.assert_tidy(output)
        self.check_tables()

    def check_tables(self):
        """Checks that the report makes all tables, and that only the cells of GPU utilization are empty on CPUs."""
        tables = json.loads(self.succeeds("report", "runs/workshop", "--tables", "workshop", "--format", "json"))["tables"]
        self.assertEqual(len(tables), 12)
        for table in tables:
            self.assertNotIn("No run for", " ".join(table["remarks"]), table["name"])
            for row in table["rows"]:
                for column, value in row.items():
                    note = value.get("notes", []) if isinstance(value, dict) else []
                    if note == ["CPU ranks have no GPU"]:  # a cell of GPU utilization
                        continue
                    value = value["value"] if isinstance(value, dict) else value
                    self.assertNotIn(value, [None, ""], (table["name"], row, column))

    def test_slurm_jobs_of_all_recipes(self):
        self.succeeds("slurm", "--gpus-per-node", "8", "sweep", RECIPES)
        script = self.read("runs", "workshop", "submit.sh").decode()
        self.assertEqual(script.count("/job.sbatch\n"), 39)
        for name, (ranks, *_) in EXPERIMENTS.items():
            job = self.read("runs", "workshop", name, "job.sbatch").decode()
            nodes = re.search(r"multi_?-?node/(\d)_nodes", name)
            nodes = int(nodes[1]) if nodes else 2 if name.endswith("16_gpus") else 1
            for option in [f"nodes={nodes}", f"gpus-per-node={ranks // nodes}", "time=01:00:00", "cpus-per-task=4"]:
                self.assertRegex(job, rf"(?m)^#SBATCH --{option}$")
            self.assertRegex(job, rf"(?m)^#SBATCH --ntasks-per-node={ranks // nodes} ")

    def test_rows_of_each_rank(self):
        for ranks in 1, 2:
            self.succeeds("train", recipe(f"{MULTI}2_gpus"), *TINY[:6], "--eval-dataset", "eval.jsonl", "--model", "config.json",
                          "--train-size-per-rank", "8", "--eval-size", "4", "--max-length", "48", "--epochs", "1", "--nproc",
                          str(ranks), "--output-dir", f"out{ranks}", "--threads", "1")
            self.assertEqual(self.json_of(f"out{ranks}", "summary.json")["train_data"]["rows_used"], 8 * ranks)


if __name__ == "__main__":
    main()
