"""The recipes give the same losses as the workshop's jobs in the Hugging Face Trainer, in fp32 on the same rows.

tools/make_workshop_reference.py made tests/parity/workshop/*.json. Each file has the losses of one job in the
Trainer, once in fp32 and once in fp64. The difference between the two losses of a step is the rounding error of the
fp32 run.

Tolerance: if two fp32 programs compute the same formulas, but sum in different orders, their rounding errors have about
the same size. The largest error of the Trainer's fp32 run is the estimate of this size. The estimate is at least one
fp32 unit in the last place of the largest loss. Tessera's losses may differ from the fp64 losses by at most 8 times the
estimate, because the errors of single steps vary. A wrong formula changes the losses much more: one wrong label, one
wrong token or a missing decay changes them by more than 1e-4.
"""
import json
import math
import os

from tessera_cli import CliTest, main

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RECIPES = os.path.join(ROOT, "recipes", "workshop")
QUICKSTART = os.path.join(ROOT, "recipes", "quickstart")
REFERENCES = os.path.join(ROOT, "tests", "parity", "workshop")


class WorkshopParity(CliTest):
    def losses(self, recipe, job, *words):
        self.succeeds("train", os.path.join(RECIPES, recipe + ".toml"), "--dataset", os.path.join(QUICKSTART, "train.json"),
                      "--eval-dataset", os.path.join(QUICKSTART, "eval.json"), "--eval-strategy", "no", "--save-strategy",
                      "no", "--no-load-best-model-at-end", "--no-eval-generation", "--output-dir", "out", "--nproc", "1",
                      "--strategy", "no_shard", "--precision", "fp32", "--device", "cpu", "--subset", "first",
                      "--no-shuffle", "--truncation", "right", "--no-append-eos", "--logging-steps", "1", "--eval-size",
                      "1", "--train-size", str(job["rows"]), "--max-length", str(job["max_length"]), "--batch-size",
                      str(job["batch"]), "--grad-accum", str(job["accumulation"]), "--epochs", str(job["epochs"]), *words)
        with open(os.path.join(self.folder, "out", "metrics.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        return [record["loss"] for record in records if record["kind"] == "train"]

    def assert_equal_losses(self, name, recipe, *words):
        with open(os.path.join(REFERENCES, name + ".json"), encoding="utf-8") as file:
            job = json.load(file)
        exact = job["losses_fp64"]
        losses = self.losses(recipe, job, *words)
        self.assertEqual(len(losses), len(exact))
        ulp = 2.0 ** (math.floor(math.log2(max(exact))) - 23)
        size = max(ulp, *(abs(a - b) for a, b in zip(job["losses"], exact)))
        worst = max(abs(a - b) for a, b in zip(losses, exact))
        print(f"{name}: {len(losses)} steps differ by at most {worst:.1e}, tolerance {8 * size:.1e}")
        self.assertLessEqual(worst, 8 * size)

    def test_baseline_of_deepspeed(self):
        self.assert_equal_losses("deepspeed_baseline", "deepspeed/baseline", "--model", os.path.join(QUICKSTART, "model"))

    def test_baseline_of_fsdp(self):
        self.assert_equal_losses("fsdp_baseline", "fsdp/bloom/baseline", "--model", os.path.join(QUICKSTART, "model"),
                                 "--objective", "separate")

    def test_custom_model(self):
        self.assert_equal_losses("custom_model", "fsdp/custom_model/multi_gpu/2_gpus", "--model",
                                 os.path.join(REFERENCES, "gpt"), "--init", "pretrained", "--tokenizer",
                                 os.path.join(QUICKSTART, "model"), "--objective", "prompt")


if __name__ == "__main__":
    main()
