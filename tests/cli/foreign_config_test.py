"""Tests settings from the configurations of other programs: DeepSpeed's JSON file and the options of FSDP."""
import json

from tessera_cli import CliTest, main

# A DeepSpeed configuration without sharding (stage 0). Many values are "auto". On one rank, "auto" gives 8 as
# gradient_accumulation_steps: 24 = 3 x 8.
AUTO = {
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "hysteresis": 2, "min_loss_scale": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": "auto", "warmup_max_lr": "auto",
                                                      "total_num_steps": "auto", "warmup_type": "linear"}},
    "zero_optimization": {"stage": 0, "overlap_comm": True, "allgather_bucket_size": 2e8},
    "gradient_clipping": 0.5,
    "train_batch_size": 24,
    "train_micro_batch_size_per_gpu": 3,
    "gradient_accumulation_steps": "auto",
}


class DeepSpeed(CliTest):
    def config(self, **changes):
        return self.write("ds.json", json.dumps({**AUTO, **changes}))

    def test_values_and_origins(self):
        self.config()
        self.write("c.toml", "deepspeed = \"ds.json\"\nlr = 1e-3\nmax_grad_norm = 7\n")
        code, out, err = self.run_tessera("config", "train", "c.toml", "--weight-decay", "0.3")
        self.assertEqual(code, 0, err)
        self.assertEqual(err, "warning: ds.json: these keys are ignored, because they have no effect in Tessera: "
                              "zero_optimization.allgather_bucket_size (gathered unit by unit), "
                              "zero_optimization.overlap_comm (always overlapped)\n")
        for line in (r"# deepspeed = \"ds\.json\" +# c\.toml:1", r"lr = 0\.001 +# c\.toml:2",
                     r"max_grad_norm = 0\.5 +# ds\.json: gradient_clipping", r"weight_decay = 0\.3 +# flag --weight-decay",
                     r"batch_size = 3 +# ds\.json: train_micro_batch_size_per_gpu",
                     r"grad_accum = 8 +# ds\.json: train_batch_size",
                     r"strategy = \"no_shard\" +# ds\.json: zero_optimization\.stage", r"beta1 = 0\.9 +# default"):
            self.assertRegex(out, rf"(?m)^{line}$")

    def test_defaults_of_deepspeed_are_named(self):
        self.write("ds.json", '{"optimizer": {"type": "AdamW"}}')
        out = self.succeeds("config", "train", "--deepspeed", "ds.json")
        self.assertRegex(out, r"(?m)^weight_decay = 0\.0 +# default of DeepSpeed$")
        self.assertRegex(out, r"(?m)^max_grad_norm = 0\.0 +# default of DeepSpeed$")
        self.assertRegex(out, r"(?m)^lr = 0\.001 +# default of DeepSpeed$")

    def test_what_is_printed_reads_back(self):
        self.config()
        first = self.succeeds("config", "train", "--deepspeed=ds.json")
        self.write("again.toml", first)
        values = lambda text: [line.rsplit("  # ", 1)[0].rstrip() for line in text.splitlines() if line[:1] != "#"]
        self.assertEqual(values(first), values(self.succeeds("config", "train", "again.toml")))

    def test_ranks_count(self):
        self.config(train_micro_batch_size_per_gpu=3, gradient_accumulation_steps=4)
        for verb in "train", "plan":
            out = self.succeeds("config", verb, "--deepspeed", "ds.json", "--nproc", "2")
            self.assertRegex(out, r"(?m)^grad_accum = 4 +# ds\.json: gradient_accumulation_steps$")
            for words, ranks in ([], "1 rank"), (["--nproc", "4"], "4 ranks"):
                self.fails(2, f"(ds.json: gradient_accumulation_steps) x {ranks}.", "config", verb, "--deepspeed",
                           "ds.json", *words)
        # The variables say that the process is one of two ranks of mpirun. With two ranks, the batch sizes in the file
        # agree (24 = 3 x 4 x 2), so the error is only about missing settings.
        code, _, err = self.run_tessera("train", "--deepspeed", "ds.json",
                                        env={"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"})
        self.assertEqual(code, 2)
        self.assertIn("error: rank 0: train: needs --model, --dataset and --output-dir", err)

    def test_wrong_files(self):
        for changes, message in [
            ({"train_batch_size": "24"}, 'ds.json: train_batch_size: must be a whole number, got "24". Write it without'),
            ({"train_batch_size": 25}, "ds.json: train_batch_size: 25 is not a multiple of batch_size 3 (ds.json: "
                                       "train_micro_batch_size_per_gpu) x 1 rank"),
            ({"gradient_accumulation_steps": 4}, "ds.json: train_batch_size: 24 is not batch_size 3 (ds.json: "
                                                 "train_micro_batch_size_per_gpu) x grad_accum 4 (ds.json: "
                                                 "gradient_accumulation_steps) x 1 rank"),
            ({"gradient_cliping": 1}, 'ds.json: has the unknown key "gradient_cliping". Did you mean "gradient_clipping"?'),
            ({"optimizer": {"type": "Adam", "params": {"adam_w_mode": False}}}, "ds.json: optimizer.params.adam_w_mode: "),
            ({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0}}},
             'ds.json: scheduler.type: "OneCycle" is not supported. Use WarmupLR or WarmupDecayLR, or remove the section "scheduler" '
             "and give --lr-schedule"),
            ({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 9, "total_num_steps": 8}},
              "zero_optimization": {"stage": 0}},
             "ds.json: scheduler.params.total_num_steps: is 8 steps, but the warm-up alone takes 9 steps (ds.json: scheduler"),
        ]:
            with self.subTest(changes=changes):
                self.config(**changes)
                self.fails(2, message, "config", "train", "--deepspeed", "ds.json")
        self.config()
        self.fails(2, "24 is not a multiple of batch_size 5 (flag --batch-size)", "config", "train", "--deepspeed",
                   "ds.json", "--batch-size", "5")
        self.fails(2, "nowhere.json: no such file. --deepspeed needs", "config", "train",
                   "--deepspeed", "nowhere.json")
        self.fails(2, ": is a folder, not a file. --deepspeed needs", "config", "train", "--deepspeed", self.folder)
        self.fails(2, "/dev/zero: is a device, not a regular file", "config", "train", "--deepspeed", "/dev/zero")
        self.write("ds.json", "{\n\"a\": }")
        self.fails(2, "ds.json:2:6: not valid JSON", "config", "train", "--deepspeed", "ds.json")


class Fsdp(CliTest):
    def test_table(self):
        self.write("c.toml", "[fsdp]\nsharding_strategy = \"NO_SHARD\"\nbackward_prefetch = \"BACKWARD_POST\"\n"
                             "transformer_layer_cls_to_wrap = [\"BloomBlock\"]\nuse_orig_params = true\n")
        code, out, err = self.run_tessera("config", "train", "c.toml")
        self.assertEqual((code, err), (0, "warning: c.toml: [fsdp]: these keys are ignored, because they have no "
                                          "effect in Tessera: use_orig_params (Tessera has no Python modules)\n"))
        self.assertRegex(out, r"(?m)^strategy = \"no_shard\" +# c\.toml:2$")
        self.assertRegex(out, r"(?m)^backward_prefetch = \"post\" +# c\.toml:3$")

    def test_flags(self):
        out = self.succeeds("config", "train", "--strategy", "NO_SHARD", "--backward-prefetch", "BACKWARD_PRE")
        self.assertIn('backward_prefetch = "pre"', out)
        self.assertRegex(self.succeeds("config", "train", "--fsdp", "no_shard auto_wrap"),
                         r"(?m)^strategy = \"no_shard\" +# flag --fsdp$")
        self.fails(2, '--fsdp: "no_shard" contradicts --strategy "full_shard"', "config", "train", "--fsdp", "no_shard",
                   "--strategy", "zero3")
        self.succeeds("config", "train", "--fsdp", "no_shard", "--strategy", "zero0")


if __name__ == "__main__":
    main()
