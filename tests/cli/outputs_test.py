"""docs/outputs.md documents the keys that Tessera writes, and no other keys."""
import json
import os
import re

from tessera_cli import main
from tiny_job import EVALUATED, GPT, JOB, ON_GPU, TinyJobTest, jsonl, questions

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "outputs.md")


def documented():
    """{heading: {key: meaning}} of the page. If a key contains the word CATEGORY or PHASE, the result has one key for
    each category or phase."""
    with open(PAGE, encoding="utf-8") as file:
        lines = file.read().splitlines()
    tables, heading = {}, None
    for line in lines:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("| `"):
            keys, meaning = line.split("|")[1], line.split("|")[-2]
            for key in re.findall(r"`([^`]*)`", keys):
                assert key not in tables.setdefault(heading, {}), (heading, key)
                tables[heading][key] = meaning
    words = tables.pop("Categories and phases")
    for heading, keys in tables.items():
        for word, all_of_it in [("CATEGORY", [w for w in words if w not in PHASES]), ("PHASE", PHASES)]:
            keys = {key.replace(word, one): meaning for key, meaning in keys.items()
                    for one in (all_of_it if word in key else [""])}
        tables[heading] = keys
    assert set(PHASES) <= set(words)
    return tables


PHASES = ["load", "step", "evaluation", "save", "resume"]


def keys_of(value, prefix=""):
    """The keys of a JSON object, written as on the page: `a.b` for nested objects, `a[].b` for lists of objects."""
    keys = set()
    for key, inner in value.items():
        path = prefix + key
        objects = [one for one in inner if isinstance(one, dict)] if isinstance(inner, list) else []
        if isinstance(inner, dict):
            keys |= keys_of(inner, path + ".")
        elif objects:
            keys = keys.union(*(keys_of(one, path + "[].") for one in objects))
        else:
            keys.add(path)
    return keys


# A measured machine, as doctor --measure --json prints it.
MACHINE = {
    "schema": 1, "name": "a GPU", "source": "measured",
    "products": [{"type": "bf16", "form": form, "rows": size, "in": size, "out": size, "flops_per_s": 1e14}
                 for form in ("forward", "backward_input", "backward_weight") for size in (64, 1024)],
    "attention": [{"type": "bf16", "alibi": False, "head_dim": 64, "length": 512, "heads": 64, "forward_flops_per_s": 1e13,
                   "backward_flops_per_s": 1e13}],
    "memory": [{"bytes": 1000, "seconds": 1e-6}, {"bytes": 10 ** 9, "seconds": 1e-3}],
    "num_multiprocessors": 100, "launch_s": 1e-6, "to_device_bytes_per_s": 1e10, "to_host_bytes_per_s": 1e10, "copy_s": 1e-6,
    "host_bytes_per_s": 1e11, "host_parameters_bytes_per_s": 1e11, "host_moments_bytes_per_s": 1e11, "file_read_bytes_per_s": 1e9, "file_write_bytes_per_s": 1e9,
    "within_node": {"latency_s": 1e-5, "bytes_per_s": 1e11}, "between_nodes": {"latency_s": 0, "bytes_per_s": 0}}


class Outputs(TinyJobTest):
    PAGE = documented()

    def assert_documented(self, heading, keys, without=()):
        """Asserts that `keys` are the keys under this heading of the page. Exception: for some keys, the page has a
        condition in italics. `without` names what this run does not have. If a key's condition contains one of these
        names, the key must not be in `keys`."""
        page = self.PAGE[heading]
        without = [*without, *([] if any("mixture" in key for key in keys) else ["shares"])]
        absent = {key for key, meaning in page.items()
                  if any(one in condition for condition in re.findall(r"\*([^*]+)\*", meaning) for one in without)}
        self.assertEqual(set(page) - absent - set(keys), set(), f"not written, but on the page under {heading}")
        self.assertEqual(set(keys) - set(page), set(), f"written, but not on the page under {heading}")
        self.assertEqual(set(keys) & absent, set(),
                         f"written, although their conditions on the page under {heading} contain one of {without}")

    def json_output(self, *words, **options):
        return json.loads(self.succeeds(*words, "--json", **options))

    def check_run(self, kinds, without, *words, job):
        """Trains, and checks the keys of summary.json and metrics.jsonl. metrics.jsonl must have records of exactly
        these kinds."""
        without = [*without, "--resume", "--preflight", "--memory-log", "a measured machine",
                   *(flag for flag in ("--experiment", "--batch-tokens") if flag not in words)]
        if ON_GPU:
            self.skipTest("the keys about GPUs depend on the machine")
        summary = self.json_output("train", *job, "--output-dir", "out", *words, env={"NCCL_DEBUG": "WARN"})
        self.assertEqual(summary, self.json_of("out", "summary.json"))
        summary["environment"] = {"VARIABLE": summary["environment"]["NCCL_DEBUG"]}
        self.assert_documented("summary.json", keys_of(summary) - {"epochs"}, without)
        common = set(self.PAGE["metrics.jsonl"])
        for kind in ["train", "eval", "skipped", "summary"]:
            records = self.metrics("out", kind)
            self.assertEqual(bool(records), kind in kinds, kind)
            for record in records:
                self.assertTrue(common <= set(record))
            if records:
                keys = set().union(*map(keys_of, records))
                self.assert_documented(f"kind: {kind}", keys - common, without)

    def add_a_question_without_an_answer(self):
        rows = questions(7, 2)
        self.write("eval.jsonl", jsonl([*rows, {**rows[0], "id": "none", "answers": []}]))

    def test_of_a_run_with_everything(self):
        self.add_a_question_without_an_answer()
        self.check_run(["train", "eval", "skipped", "summary"], ["GPU"], "--precision", "fp16", "--initial-scale-power",
                       "26", "--eval-before", "--experiment", "all of it", "--dataset", "train.jsonl:1",
                       "--batch-tokens", "128", "--max-length", "128", job=EVALUATED)

    def test_of_a_run_that_evaluates_losses(self):
        without = ["GPU", "fp16", "--eval-before", "--eval-generation"]
        self.check_run(["train", "eval", "summary"], without, "--eval-dataset", "eval.jsonl", job=JOB)

    def test_of_a_run_with_nothing(self):
        without = ["GPU", "fp16", "--eval-before", "--eval-generation", "--eval-dataset"]
        self.check_run(["train", "summary"], without, job=GPT)

    def test_of_a_run_from_a_checkpoint_of_another_folder(self):
        self.train("whole", "--max-steps", "2", job=JOB)
        summary = self.json_output("train", *JOB, "--max-steps", "4", "--resume", "whole/checkpoint-2", "--output-dir", "out")
        summary["environment"] = {"VARIABLE": "a variable"}
        without = ["--experiment", "--batch-tokens", "GPU", "fp16", "--eval-before", "--eval-generation", "--eval-dataset", "--preflight",
                   "--memory-log", "a measured machine", "from the fourth step"]
        self.assert_documented("summary.json", keys_of(summary) - {"epochs"}, without)

    def test_of_a_run_with_a_memory_log(self):
        if ON_GPU:
            self.skipTest("the keys about GPUs depend on the machine")
        words = ["--max-steps", "2", "--output-dir", "out", "--memory-log", "logs"]
        summary = self.json_output("train", *GPT, *words)
        summary["environment"] = {"VARIABLE": "a variable"}
        without = ["--experiment", "--batch-tokens", "GPU", "fp16", "--eval-before", "--eval-generation", "--eval-dataset", "--resume",
                   "--preflight", "a measured machine", "from the fourth step"]
        self.assert_documented("summary.json", keys_of(summary) - {"epochs"}, without)

    def test_of_evaluation_and_generation(self):
        self.train("out", "--max-steps", "2", job=JOB)
        words = ["--model", "out/model", "--eval-dataset", "eval.jsonl"]
        generation = [*words, "--eval-generation", "--max-new-tokens", "3"]
        self.assert_documented("eval.json", keys_of(self.json_output("eval", *generation)), ["questions without an answer"])
        self.add_a_question_without_an_answer()
        report = self.json_output("eval", *generation, "--output-dir", "measured")
        self.assertEqual(report, self.json_of("measured", "eval.json"))
        self.assert_documented("eval.json", keys_of(report))
        self.assert_documented("eval.json", keys_of(self.json_output("eval", *words)), ["--eval-generation"])
        answer = self.json_output("generate", "--model", "out/model", "--prompt", "a")
        self.assert_documented("generate --json", answer, ["several adapters"])
        self.write("prompts.jsonl", '{"id": 1, "prompt": "a"}\n{"prompt": "b"}\n')
        of_lines = self.succeeds("generate", "--model", "out/model", "--prompts", "prompts.jsonl").splitlines()
        self.assert_documented("generate --prompts", json.loads(of_lines[0]), ["only of", "several adapters"])
        self.assert_documented("generate --prompts", json.loads(of_lines[1]), ["only", "several adapters"])
        self.write("out/model/chat_template.jinja", "{{ messages[-1].content }}")
        lines = self.succeeds("chat", "--model", "out/model", "--max-new-tokens", "5", "--json", input=b'{"content": "a"}\n')
        self.assert_documented("chat --json", set().union(*map(json.loads, lines.splitlines())), ["refused"])
        ids = self.json_output("tokenize", "--tokenizer", "tok", "--prompt", "a")
        self.assert_documented("tokenize --json", ids)

    def test_of_a_plan(self):
        no_machines = {"XDG_CACHE_HOME": self.path("cache")}
        alone = self.json_output("plan", *JOB, env=no_machines)
        self.assertIsNone(alone["other_ranks"])
        self.assert_documented("plan --json", keys_of(alone), ["--fit", "--eval-dataset", "--batch-tokens", "a measured machine"])
        self.write("machine.json", json.dumps(MACHINE))
        found = self.json_output("plan", "--model", "bloom-560m", "--device", "cuda", "--nproc", "2", "--fit", "4GiB", "--machine",
                                 "machine.json")
        self.assertGreater(len(found["time"]["kernels"]), 5)
        found["time"]["kernels"] = {"KERNEL_s": 0}
        fit = found["fit"]
        self.assertTrue(fit["runners_up"] and fit["with_next_gib"])
        self.assertEqual(keys_of(found.pop("other_ranks")), keys_of(found["first_rank"]))
        found["fit"] = {key: value if key == "machine" else None for key, value in fit.items()}
        self.assert_documented("plan --json", keys_of(found) | {"other_ranks"}, ["--dataset", "unmeasured"])
        for configuration in [fit["best"], *fit["runners_up"], fit["with_next_gib"]]:
            self.assert_documented("fit.best, fit.runners_up[] and fit.with_next_gib", keys_of(configuration))

    def test_of_a_sweep(self):
        self.write("job.toml", 'model = "config.json"\ninit = "random"\ntokenizer = "tok"\ndataset = "train.jsonl"\n'
                               'max_steps = 1\n')
        self.write("sweep.toml", 'base = "job.toml"\n')
        self.assert_documented("sweep --json", keys_of(self.json_output("sweep", "sweep.toml", "--dry-run")),
                               ["--dry-run"])
        self.assert_documented("sweep --json", keys_of(self.json_output("sweep", "sweep.toml")))

    def test_of_settings_and_machine(self):
        settings = self.json_output("config", "train", *JOB)
        self.assert_documented("config --json", {f"SETTING.{key}" for value in settings.values() for key in value})
        facts = self.json_output("doctor", env={"OMP_NUM_THREADS": "1"})
        self.assert_documented("doctor --measure --json", keys_of(MACHINE))
        facts["environment"] = {"VARIABLE": facts["environment"]["OMP_NUM_THREADS"]}
        gpus = facts["cuda"].pop("gpus")
        keys = keys_of(facts) | {f"cuda.gpus[].{key}" for gpu in gpus for key in gpu}
        self.assertEqual(keys - set(self.PAGE["doctor --json"]), set())


if __name__ == "__main__":
    main()
