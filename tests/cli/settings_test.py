"""Tests flags, configuration files, environment variables, help and the verb `config`."""
import json
import os
import re

from tessera_cli import CliTest, flag_of, main


class Program(CliTest):
    def test_help_and_version(self):
        self.assertRegex(self.succeeds("--version"), r"^tessera \d+\.\d+\.\d+ \(.+\)\n$")
        help_text = self.succeeds("config", "--help", "all")
        self.assertIn("--lr RATE\n", help_text)
        self.assertIn("[default: 5e-05] [also: --learning-rate]", help_text)
        self.assertIn("--shuffle, --no-shuffle\n", help_text)

    def test_help_of_a_verb_has_its_settings_only(self):
        out = self.succeeds("doctor", "--help")
        self.assertIn("--output-dir", out)
        self.assertNotIn("--lr", out)

    def test_help_of_config_names_the_verb_whose_settings_it_takes(self):
        self.assertIn("settings of the verb, for example of train:\nsee tessera train --help.\n",
                      self.succeeds("config", "--help"))
        self.assertIn("settings of plan:\nsee tessera plan --help.\n", self.succeeds("config", "plan", "--help"))

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            code, _, err = self.run_tessera("config", stdout=full)
        self.assertEqual(code, 1)
        self.assertIn("error: standard output: cannot write to it: No space left on device", err)


class Flags(CliTest):
    def test_flags_that_would_do_nothing(self):
        self.write("epochs.toml", 'save_strategy = "epoch"\neval_strategy = "epoch"\n')
        for words, error in [(["epochs.toml", "--save-steps", "2"], '--save-steps: does nothing unless save_strategy is "steps"'),
                             (["epochs.toml", "--eval-steps", "2"], '--eval-steps: does nothing unless eval_strategy is "steps"'),
                             (["--eval-steps", "2"], "--eval-steps: does nothing without an eval_dataset"),
                             (["--eval-before"], "--eval-before: does nothing without an eval_dataset"),
                             (["--eval-generation"], "--eval-generation: does nothing without an eval_dataset"),
                             (["--eval-size", "2"], "--eval-size: does nothing without an eval_dataset")]:
            self.fails(2, error, "config", "train", *words)
        # A file may contain such settings, because other runs may use the same file.
        self.write("run.toml", "save_steps = 2\neval_before = true\n")
        self.succeeds("config", "train", "run.toml")
        self.succeeds("config", "train", "--no-eval-before", "--eval-size", "0", "--save-steps", "0")
        for strategy in "steps", "no":
            self.succeeds("config", "train", "--save-steps", "2", "--save-strategy", strategy)
        # A number of steps alone chooses the strategy.
        out = self.succeeds("config", "train", "--save-steps", "0.5", "--eval-steps", "3", "--eval-dataset", "e.json")
        self.assertRegex(out, r'(?m)^save_strategy = "steps" +# flag --save-steps$')
        self.assertRegex(out, r'(?m)^eval_strategy = "steps" +# flag --eval-steps$')

    def test_micro_batches_by_samples_or_by_tokens(self):
        self.fails(2, "--batch-tokens: 600 contradicts --batch-size 2. Give only one of the two",
                   "config", "train", "--batch-tokens", "600", "--batch-size", "2")
        self.fails(2, "--batch-tokens: a micro-batch of 511 tokens has no room for a sample of max_length 512 (--max-length). "
                   "Give at least 512, or a smaller --max-length", "config", "train", "--batch-tokens", "511")
        self.fails(2, "--batch-tokens: must be at most 4194304, got 4194305", "config", "train", "--batch-tokens", "4194305")
        self.write("run.toml", "batch_size = 2\n")
        out = self.succeeds("config", "train", "run.toml", "--batch-tokens", "600")
        self.assertRegex(out, r"(?m)^batch_size = 0 +# flag --batch-tokens$")
        self.write("again.toml", out)
        self.assertRegex(self.succeeds("config", "train", "again.toml"), r"(?m)^batch_tokens = 600 ")

    def test_more_ranks_than_a_machine_can_start(self):
        self.write("data.json", "{}")
        self.fails(2, "--nproc: 1000000 ranks are too many for this machine", "train", "--nproc", "1000000", "--model", "m",
                   "--dataset", "data.json", "--output-dir", "out")

    def test_unknown_flags(self):
        self.fails(2, '--leraning-rate: unknown flag. Did you mean "--learning-rate"?', "config", "--leraning-rate", "1")
        self.fails(2, '--batchsize: unknown flag. Did you mean "--batch-size"?', "config", "--batchsize=3")
        self.fails(2, "--zzzzzz: unknown flag. See tessera config --help all", "config", "--zzzzzz")
        self.fails(2, "-x: unknown flag", "config", "-x")
        self.fails(2, "--lr: is not a setting of doctor. It belongs to train and plan", "doctor", "--lr", "1")
        self.fails(2, "--no-lr: --lr is not a boolean setting", "config", "--no-lr")

    def test_words_of_the_trainer(self):
        for words, precision in [(["--fp16", "True"], "fp16"), (["--bf16"], "bf16"), (["--fp16=false", "--bf16", "true"], "bf16"),
                                 (["--no-fp16"], "auto"), (["--no-bf16"], "fp32")]:
            out = self.succeeds("config", "train", *words, "--gradient-checkpointing", "--optim", "adamw_torch", "--report-to",
                                "none")
            self.assertRegex(out, rf'(?m)^precision = "{precision}" ')
            self.assertRegex(out, r'(?m)^activation_checkpointing = "block" +# flag --gradient-checkpointing$')
        self.fails(2, "--fp16: true contradicts --bf16 true. Give only one of the two",
                   "config", "train", "--fp16", "--bf16")
        self.fails(2, '--gradient-checkpointing: true contradicts --activation-checkpointing "3". '
                      'Give only one of the two', "config",
                   "train", "--gradient-checkpointing", "--activation-checkpointing", "3")
        for words, trackers in (["tensorboard", "wandb"], "tensorboard,wandb"), (["all"], "tensorboard,wandb"), (["wandb"], "wandb"):
            out = self.succeeds("config", "train", "--report-to", ",".join(words))
            self.assertRegex(out, rf'(?m)^tracker = "{trackers}" +# flag --report-to$')
        self.fails(2, '--report-to: unknown tracker "mlflow"', "config", "train", "--report-to", "mlflow")

    def test_activation_checkpointing(self):
        for word, shown in [("off", "none"), ("0", "none"), ("False", "none"), ("on", "block"), ("true", "block"), ("all", "block"),
                            ("12", "12"), ("block=12", "12"), ("mlp", "mlp"), ("mlp=20, block=4", "block=4,mlp=20")]:
            out = self.succeeds("config", "train", "--activation-checkpointing", word)
            self.assertIn(f'\nactivation_checkpointing = "{shown}" ', out)
        for value, shown in [("12", "12"), ("true", "block"), ("false", "none"), ('"2"', "2"), ('"mlp,attention"', "mlp,attention")]:
            out = self.succeeds("config", "train", self.write("c.toml", f"activation_checkpointing = {value}\n"))
            self.assertIn(f'\nactivation_checkpointing = "{shown}" ', out)
        for wrong in ["-1", "2.5", "blocks", ""]:
            self.fails(2, f'--activation-checkpointing: must be none, auto, a number of blocks, or a list of block, mlp and attention, '
                          f'got "{wrong}"', "config", f"--activation-checkpointing={wrong}")
        self.fails(2, '--activation-checkpointing: 25 blocks, but the model has only 24. Give at most 24, or "block"', "plan", "--model",
                   "bloom-560m", "--activation-checkpointing", "25")
        self.fails(2, '--activation-checkpointing: 25 blocks, but the model has only 24. Give at most 24, or "mlp"', "plan", "--model",
                   "bloom-560m", "--activation-checkpointing", "block=1,mlp=25")

    def test_optimizer_states(self):
        self.succeeds("config", "train", "--optimizer-states", "bf16", "--precision", "bf16")
        for precision in ["auto", "fp32", "fp16", "bf16"]:
            out = self.succeeds("config", "train", "--optimizer-states", "8bit", "--precision", precision)
            self.assertIn('\noptimizer_states = "8bit" ', out)
        for word in ["adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit"]:
            self.fails(2, "--optimizer-states 8bit keeps its moments in 8 bits", "config", "train", "--optim", word)
        for precision in ["fp32", "fp16"]:
            self.fails(2, f'--optimizer-states: "bf16" also keeps the weights in bf16, but the precision is "{precision}". Give '
                          "--precision bf16, or --optimizer-states fp32 or 8bit", "config", "train", "--optimizer-states", "bf16",
                       "--precision", precision)

    def test_words_and_values(self):
        self.fails(2, "b.toml: unexpected argument", "config", self.write("a.toml", ""), "b.toml")
        self.fails(2, "--lr: needs a value", "config", "--lr")
        self.fails(2, "--dataset: needs a value", "config", "--dataset", "--epochs", "3")
        self.fails(2, "--lr: must be a number, got \"fast\"", "config", "--lr", "fast")
        self.fails(2, "--lr: must be a number, got \"\"", "config", "--lr=")
        self.fails(2, "--shuffle: must be true or false, got \"maybe\"", "config", "--shuffle=maybe")
        self.fails(2, "--model: is not valid UTF-8", "config", b"--model=\xff\xfe")

    def test_ranges(self):
        for words, message in [
            (["--batch-size", "0"], "--batch-size: must be at least 1, got 0"),
            (["--batch-size", "2.5"], '--batch-size: must be a whole number, got "2.5"'),
            (["--batch-size", "3000000000"], "--batch-size: must be at most 2147483647, got 3000000000"),
            (["--lr", "-1e-4"], "--lr: must be at least 0, got -0.0001"),
            (["--lr", "nan"], "--lr: must be a finite number, got nan"),
            (["--lr", "inf"], "--lr: must be a finite number, got inf"),
            (["--epochs", "-1"], "--epochs: must be greater than 0, got -1.0"),
            (["--epochs=0"], "--epochs: must be greater than 0, got 0.0"),
            (["--beta1", "1"], "--beta1: must be less than 1, got 1.0"),
            (["--warmup-ratio", "1.5"], "--warmup-ratio: must be at most 1, got 1.5"),
            (["--seed", "-3"], "--seed: must be at least 0, got -3"),
            (["--max-length", "99999999999999999999"], "--max-length: must be a whole number"),
        ]:
            with self.subTest(words=words):
                self.fails(2, message, "config", *words)

    def test_choices(self):
        self.fails(2, '--strategy: unknown value "full-shart". Did you mean "full_shard"? Use one of: no_shard, ',
                   "config", "--strategy", "full-shart")
        self.fails(2, "Use one of: auto, fp32, tf32, fp16, bf16", "config", "--precision", "int3")

    def test_settings_against_each_other(self):
        for words, message in [
            (["--eval-strategy", "steps"], '--eval-strategy: "steps" needs the number of steps. Give --eval-steps'),
            (["--save-strategy", "steps"], '--save-strategy: "steps" needs the number of steps. Give --save-steps'),
            (["--warmup-steps", "5", "--warmup-ratio", "0.1"], "--warmup-ratio: 0.1 contradicts warmup_steps 5"),
            (["--load-best-model-at-end", "--eval-strategy", "no"], "--load-best-model-at-end: needs evaluations"),
            (["--load-best-model-at-end", "--save-strategy", "no"], "needs a checkpoint of each evaluated model"),
            (["--load-best-model-at-end", "--eval-strategy=steps", "--save-strategy=steps", "--eval-steps=2",
              "--save-steps=3"], "save_steps 3 is not a multiple of eval_steps 2"),
            (["--load-best-model-at-end", "--metric-for-best-model=f1"], "need generated answers"),
            (["--hidden-size", "10", "--num-heads", "3"], "--hidden-size: 10 is not divisible by num_heads 3"),
            (["--prompt", "a", "--question", "b"], "--prompt: contradicts question"),
            (["--context", "a"], "--context: needs a question"),
        ]:
            with self.subTest(words=words):
                self.fails(2, message, "config", *words)

    def test_what_this_build_cannot_do(self):
        self.fails(2, '--precision: "tf32" needs a GPU. The CPU supports: fp32, fp16, bf16', "config", "--device", "cpu",
                   "--precision", "tf32")
        self.assertIn('strategy = "no_shard"', self.succeeds("config", "--strategy", "zero0"))


class Files(CliTest):
    def test_wrong_files(self):
        for text, message in [
            ("lr = \n", "c.toml:1: is not TOML: "),
            ("\neval_strategy = no\n", "c.toml:2: is not TOML: "),
            ("lr = 1\n[= 3]\n", "c.toml:2: is not TOML: "),
            ("é = 1\n", "c.toml:1: is not TOML: "),
            ("lr = 1、\n", "c.toml:1: is not TOML: "),
            (b"model = \"\xff\"\n", "c.toml:1: is not TOML: "),
            ("# one\nleraning_rate = 1\n", 'c.toml:2: leraning_rate: unknown setting. Did you mean "learning_rate"?'),
            ("batch_size = 0\n", "c.toml:1: batch_size: must be at least 1, got 0"),
            ("batch_size = 1.5\n", "c.toml:1: batch_size: must be a whole number, got 1.5"),
            ("batch_size = \"4\"\n", 'c.toml:1: batch_size: must be a whole number, got "4"'),
            ("model = 3\n", "c.toml:1: model: must be a text in quotes, got 3"),
            ("shuffle = 1\n", "c.toml:1: shuffle: must be true or false, got 1"),
            ("lr = nan\n", "c.toml:1: lr: must be a finite number, got nan"),
            ("lr = [1]\n", "c.toml:1: lr: is an array, but a setting must be"),
            ("lr = 2020-01-01\n", "c.toml:1: lr: is a date or time, but a setting must be"),
            ("lr = 1\nlearning-rate = 2\n", "is already set in line"),
            ("lr = 1\nlr = 2\n", "c.toml:2: is not TOML: "),
            ("[confg]\n lr = 1\n", 'c.toml:2: [confg]: unknown table; a table must have the name of a verb, or '
                                    'fsdp. Did you mean "config"?'),
            ("[config.deep]\nlr = 1\n", "c.toml:1: deep: is a table, but a setting must be"),
            ("eval_strategy = \"steps\"\n", 'c.toml:1: eval_strategy: "steps" needs the number of steps'),
            ("\nprecision = \"tf32\"\ndevice = \"cpu\"", 'c.toml:2: precision: "tf32" needs a GPU'),
            ("a." * 5000 + "a = 1\n", "c.toml:1: a: is "),
            ("# " + "x" * 20000, "c.toml: has more than 16384 bytes, the limit for this file"),
        ]:
            with self.subTest(text=text[:60]):
                self.write("c.toml", text)
                self.fails(2, message, "config", "c.toml")

    def test_unreadable_files(self):
        self.fails(2, "nowhere.toml: no such file. The argument after the verb must be a TOML file", "config",
                   "nowhere.toml")
        self.fails(2, ": is a folder, not a file. The argument after the verb", "config", self.folder)
        self.fails(2, "/dev/zero: is a device, not a regular file", "config", "/dev/zero")

    def test_empty_texts(self):
        """A setting that always needs a value refuses an empty text. For the other settings, an empty text means "none",
        and a warning says so."""
        printed = self.succeeds("config", "train")
        texts = re.findall(r'(?m)^#? ?(\w+) = "(.*)" ', printed)
        self.assertGreater(len(texts), 20)
        self.write("c.toml", 'resume = ""\n')
        self.fails(2, 'c.toml:1: resume: is empty. Give a value, or leave it out: the default is "auto"', "config", "train",
                   "c.toml")
        empty = []
        for name, preset in texts:
            flag = flag_of(name)
            if name == "unanswerable_text":  # the empty text is a value of its own
                self.assertEqual(self.run_tessera("config", "train", flag, "")[::2], (0, ""))
            elif preset:
                self.fails(2, flag + ": ", "config", "train", flag, "")
            else:
                empty += [flag, ""]
        code, out, err = self.run_tessera("config", "train", *empty)
        self.assertEqual((code, out.replace("flag", "default").count("= \"\"")), (0, len(empty) // 2))
        self.assertEqual(err.splitlines(), [f'warning: {flag}: the value is empty and means "none". Is a shell variable not '
                                            'set?' for flag in sorted(empty[::2], key=empty.index)])

    def test_zero_bytes(self):
        self.write("c.toml", 'model = "a\\u0000b"\n')
        self.fails(2, "c.toml:1: model: contains a zero byte", "config", "c.toml")

    def test_precedence_and_origins(self):
        self.write("c.toml", "lr = 1e-3\nbatch-size = 2\nepochs = 2\n\n[config]\nepochs = 5\n[doctor]\njson = true\n")
        env = {"TESSERA_LR": "1e-2", "TESSERA_BATCH_SIZE": "3"}
        out = self.succeeds("config", "c.toml", "--learning_rate", "0.1", "--lr=0.2", "--no-shuffle", env=env)
        self.assertRegex(out, r"(?m)^lr = 0\.2 +# flag --lr$")
        self.assertRegex(out, r"(?m)^batch_size = 3 +# environment TESSERA_BATCH_SIZE$")
        self.assertRegex(out, r"(?m)^epochs = 5\.0 +# c\.toml:6$")
        self.assertRegex(out, r"(?m)^shuffle = false +# flag --shuffle$")
        self.assertRegex(out, r"(?m)^seed = 42 +# default$")
        self.assertRegex(out, r"(?m)^json = false +# default$")

    def test_round_trip(self):
        tricky = 'a "quoted" \\ back\nslash\tand # é ∑ [x]'
        first = self.succeeds("config", "--lr", "1.2345678901234568e-5", "--prompt", tricky, "--no-shuffle",
                              "--adam-epsilon=1e-300", "--seed", "9007199254740993", "--save-dtype", "BF16")
        self.write("again.toml", first)
        second = self.succeeds("config", "again.toml")
        values = lambda text: [line.rsplit("  # ", 1)[0].rstrip() for line in text.splitlines()]
        self.assertEqual(values(first), values(second))
        self.assertIn("lr = 1.2345678901234568e-05", second)
        self.assertIn("seed = 9007199254740993", second)
        self.assertEqual(json.loads(self.succeeds("config", "again.toml", "--json"))["prompt"]["value"], tricky)

    def test_json(self):
        values = json.loads(self.succeeds("config", "--json", "--threads", "2"))
        self.assertEqual(values["threads"], {"value": 2, "origin": "flag --threads"})
        self.assertEqual(values["lr"], {"value": 5e-5, "origin": "default"})
        self.assertIs(values["shuffle"]["value"], True)


class EnvironmentVariables(CliTest):
    def test_wrong_values(self):
        self.fails(2, "TESSERA_BATCH_SIZE: must be at least 1, got 0", "config", env={"TESSERA_BATCH_SIZE": "0"})

    def test_unknown_variables_are_reported(self):
        code, out, err = self.run_tessera("config", env={"TESSERA_BACH_SIZE": "2"})
        self.assertEqual(code, 0)
        self.assertEqual(err, 'warning: TESSERA_BACH_SIZE: this environment variable is not a setting and is '
                              'ignored. Did you mean "TESSERA_BATCH_SIZE"?\n')
        self.assertIn("batch_size = 4 ", out)

    def test_variables_of_other_verbs_are_ignored(self):
        self.succeeds("doctor", "--json", env={"TESSERA_LR": "1e-3"})


if __name__ == "__main__":
    main()
