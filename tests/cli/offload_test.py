"""Offload of a part of a model, and the predicted times of plans."""
import json
import os

from outputs_test import MACHINE, documented, keys_of
from tessera_cli import main
from tiny_job import BLOOM, INPUT, JOB, USAGE, TinyJobTest, without_timing

BLOCKS = 4
STEPS = ["--max-steps", "6", "--save-strategy", "steps", "--save-steps", "3", "--max-grad-norm", "0.5", "--batch-size", "8",
         "--lr-schedule", "constant"]
SHARDED = ["--strategy", "full_shard"]
PLACEMENTS = [["--offload", "optimizer=2,gradients=1"],
              ["--offload", "optimizer=60%"],
              ["--offload", "optimizer=3,gradients=3", "--device-updates", "50"],
              ["--offload", "optimizer,gradients", "--device-updates", "100"],
              [*SHARDED, "--offload", "optimizer=70%,gradients=1,parameters=3"],
              [*SHARDED, "--offload", "parameters:file=2", "--offload-dir", "files"],
              ["--offload", "optimizer:file=2,gradients:host=2", "--offload-dir", "files"]]


class PartialOffload(TinyJobTest):
    def setUp(self):
        super().setUp()
        self.write("config.json", json.dumps({**BLOOM, "n_layer": BLOCKS}))

    def test_no_bit_depends_on_the_placement(self):
        self.train("plain", *STEPS, job=JOB)
        for number, placement in enumerate(PLACEMENTS):
            output = f"placed-{number}"
            self.train(output, *STEPS, *placement, job=JOB)
            self.assertEqual(self.read(output, "model", "model.safetensors"), self.read("plain", "model", "model.safetensors"),
                             placement)
            self.assertEqual(without_timing(self.path(output, "metrics.jsonl")), without_timing(self.path("plain", "metrics.jsonl")),
                             placement)

    def test_a_run_continues_with_another_placement(self):
        self.train("plain", *STEPS, job=JOB)
        for number, placement in enumerate(PLACEMENTS):
            output = f"resumed-{number}"
            self.train(output, *STEPS, *placement, "--max-steps", "3", job=JOB)
            self.train(output, *STEPS, *PLACEMENTS[(number + 1) % len(PLACEMENTS)], job=JOB)
            self.assertEqual(self.read(output, "model", "model.safetensors"), self.read("plain", "model", "model.safetensors"),
                             placement)

    def test_a_plan_shows_what_each_block_frees(self):
        """On a GPU, the device holds less with every block that is offloaded, and the host more."""
        held = []
        for blocks in range(BLOCKS + 1):
            offload = ["--offload", f"optimizer={blocks},gradients={blocks}"] if blocks else []
            out = self.succeeds("plan", *JOB, "--device", "cuda", "--precision", "bf16", *offload, "--json")
            rank = json.loads(out)["first_rank"]
            held.append((rank["device"]["step"]["optimizer"], rank["host"]["step"]["optimizer"]))
        for (device, host), (next_device, next_host) in zip(held, held[1:]):
            self.assertLess(next_device, device)
            self.assertGreater(next_host, host)
            self.assertEqual(device + host, next_device + next_host)

    def test_errors(self):
        for words, message in (
                (["--offload", "optimizer=5"],
                 "--offload: 5 blocks are to be offloaded (optimizer), but the model has only 4. Give at most 4, or write only "
                 '"optimizer" to offload everything'),
                (["--offload", "optimizer=1,gradients=2"],
                 "--offload: the gradients of 2 units would be offloaded, but the optimizer states of only 1. Give the gradients"),
                (["--offload", "optimizer=0"], '"optimizer=0" does not say how much to offload'),
                (["--device-updates", "50"],
                 "--device-updates: 50 needs optimizer states in host memory and nothing in files, but the offload is \"none\""),
                (["--device-updates", "101", "--offload", "optimizer"], "--device-updates: must be at most 100")):
            self.fails(USAGE, message, "train", *JOB, *words, "--output-dir", "refused")


class PredictedTimes(TinyJobTest):
    def test_a_measured_machine_gives_a_time(self):
        env = {"XDG_CACHE_HOME": self.path("cache")}
        plan = ["plan", *JOB, "--device", "cpu"]
        out = self.succeeds(*plan, env=env)
        self.assertIn("time     not known: the speeds of this machine are not. tessera doctor --measure measures them, and "
                      "--machine names a file of another machine or a GPU", out)
        self.assertIsNone(json.loads(self.succeeds(*plan, "--json", env=env))["time"])
        out = self.succeeds("doctor", "--measure", "--device", "cpu", "--threads", "1", env=env)
        self.assertRegex(out, r"products in f32, up to +[\d.e+-]+ TFLOP/s")
        self.succeeds("doctor", "--measure", "--device", "cpu", "--threads", "1", "--nproc", "2", env=env)
        files = [name for name in os.listdir(self.path("cache", "tessera", "machines")) if "-x2" not in name]
        self.assertEqual(len(os.listdir(self.path("cache", "tessera", "machines"))), 2)
        self.assertGreater(json.loads(self.succeeds(*plan, "--nproc", "2", "--threads", "1", "--json", env=env))["time"]["busy"]["network_s"], 0)
        self.assertEqual(len(files), 1)
        file = self.path("cache", "tessera", "machines", files[0])
        machine = self.json_of(file)
        self.assertEqual(machine["source"], "measured")
        self.assertEqual(keys_of(machine), keys_of(MACHINE))  # outputs_test.py compares these keys with the documentation
        self.assertFalse(os.path.exists(self.path("offload")))
        self.fails(USAGE, "--threads: applies only to --measure. Add --measure, or remove it", "doctor", "--threads", "1")
        self.fails(USAGE, "--seed: does not change what --measure measures. Remove it", "doctor", "--measure", "--seed", "1")

        # A run plans its own steps, and measures them. How they compare is a matter of the machine's load.
        code, _, err = self.run_tessera("train", *JOB, "--device", "cpu", "--max-steps", "5", "--output-dir", "out", env=env)
        self.assertEqual(code, 0, err)
        self.assertNotIn("planned", err)  # too few steps for a warning
        summary = self.json_of("out", "summary.json")
        keys = {key for key in documented()["summary.json"] if key.startswith(("planned.", "measured."))}
        self.assertEqual({key for key in keys_of(summary) if key.startswith(("planned.", "measured."))}, keys)
        self.assertEqual((summary["planned"]["machine"], summary["measured"]["steps"]), (machine["name"], 2))
        self.assertEqual(summary["planned"]["device_peak_bytes"], summary["ledger_peak_bytes"]["total"])
        table = self.succeeds("report", "out", env=env)
        self.assertRegex(table, r"device planned \(MiB\) .* step planned \(s\) .* measured/planned")

        planned = json.loads(self.succeeds(*plan, "--machine", file, "--json", env=env))
        time = planned["time"]
        self.assertEqual(planned["machine"], {"name": machine["name"], "source": "measured"})
        self.assertGreater(time["step_s"], 0)
        self.assertAlmostEqual(sum(time["parts"].values()), time["step_s"], delta=0.05 * time["step_s"])
        out = self.succeeds(*plan, "--machine", file, env=env)
        self.assertRegex(out, r"\ntime     [\d.e-]+ s per step, [\d,.]+ tokens/s, [\d,.]+ samples/s \(forward .* s, backward .* s, update .* s\)\nbusy     ")

        # A machine with products of a tenth of the speed has longer steps.
        for product in machine["products"]:
            product["flops_per_s"] /= 10
        self.write("slow.json", json.dumps(machine))
        slow = json.loads(self.succeeds(*plan, "--machine", "slow.json", "--json", env=env))
        self.assertGreater(slow["time"]["step_s"], time["step_s"])

        out = self.succeeds(*plan, "--machine", "slow.json", "--nproc", "2", env=env)
        self.assertIn("time     not known: the links within a node are not. tessera doctor --measure, started with the ranks of the run, "
                      "measures them", out)
        self.assertIsNone(json.loads(self.succeeds(*plan, "--machine", "slow.json", "--nproc", "2", "--json", env=env))["time"])
        self.fails(USAGE, "--machine: slow.json has the speeds of a CPU, but the plan is for GPUs. Give --device cpu, or another machine"
                   , *plan, "--device", "cuda", "--machine", "slow.json", env=env)
        machine["host_bytes_per_s"] = -1
        self.write("bad.json", json.dumps(machine))
        self.fails(INPUT, "bad.json: host_bytes_per_s must be from 1000 to 1e+19, got -1. Measure the machine again: tessera doctor "
                   "--measure", *plan, "--machine", "bad.json", env=env)
        self.fails(USAGE, '--machine: "h9000" is neither a file nor a known GPU. Give a file that tessera doctor --measure has written, or one of v100', *plan,
                   "--machine", "h9000", env=env)


if __name__ == "__main__":
    main()
