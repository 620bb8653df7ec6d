"""Tests the help texts, and the errors for wrong command lines. These errors say how to correct the command."""
import json
import os
import re
import shlex

from tessera_cli import CliTest, flag_of, main

VERBS = ["train", "eval", "generate", "chat", "plan", "memory", "slurm", "sweep", "report", "tokenize", "tokenizer train",
         "export", "config", "doctor", "nettest"]
WITHOUT_SETTINGS = ["completions", "man"]


def flags_of(help_text):
    return re.findall(r"(?m)^  (--[a-z0-9-]+)", help_text)


def example_of(help_text):
    """Returns the words of the example command in a help text, without `tessera`."""
    command = help_text.split("\nExample:\n")[1].split("\n\n")[0].replace("\\\n", " ")
    return shlex.split(command)[1:]


def words_of_flags(help_text):
    """The flags that a help text lists, each with its other words: "--format" and [also: --dataset-format]."""
    others = re.findall(r"\[also: ([^\]]*)\]", " ".join(help_text.split()))
    return flags_of(help_text) + [word for each in others for word in each.split(", ")]


class Help(CliTest):
    def test_program(self):
        out = self.succeeds("--help")
        for words in [], ["-h"], ["help"], ["help", "--help"], ["help", "all"]:
            self.assertEqual(self.succeeds(*words), out)
        self.assertIn("Usage: tessera <verb> [config.toml] [--flags]", out)
        self.assertEqual(re.findall(r"(?m)^  ([a-z]+(?: train)?)  +[A-Z]", out), VERBS + WITHOUT_SETTINGS)
        self.assertEqual(example_of(out)[0], "train")

    def test_fits_a_screen(self):
        for words in [], *(verb.split() for verb in VERBS + WITHOUT_SETTINGS):
            lines = self.succeeds(*words, "--help").splitlines()
            self.assertLessEqual(len(lines), 40, words)
            self.assertEqual([line for line in lines if len(line) > 80], [])
        for verb in VERBS:
            lines = self.succeeds(*verb.split(), "--help", "all").splitlines()
            self.assertEqual([line for line in lines if len(line) > 80], [])

    def test_first_settings_of_train(self):
        out = self.succeeds("train", "--help")
        self.assertEqual(flags_of(out)[:3], ["--model", "--dataset", "--output-dir"])  # required settings come first
        self.assertTrue(set(flags_of(out)) > {"--eval-dataset", "--batch-size", "--epochs", "--lr", "--nproc", "--strategy",
                                              "--precision", "--objective"})
        self.assertTrue(10 <= len(flags_of(out)) <= 18, flags_of(out))
        for line in out.splitlines():  # each setting has one line
            if line.startswith("  --") and "\\" not in line:
                self.assertRegex(line, r"^  --[a-z-]+( [A-Za-z|.]+)?  +\S.{8,}")
        self.assertRegex(out.splitlines()[-1], r"^All \d+ settings: tessera train --help all$")

    def test_all_settings(self):
        for verb in VERBS:
            with self.subTest(verb=verb):
                words = verb.split()
                brief, full = self.succeeds(*words, "--help"), self.succeeds(*words, "--help", "all")
                self.assertLessEqual(set(flags_of(brief)), set(flags_of(full)))
                self.assertIn(f"tessera {verb} --help all", brief.splitlines()[-1])
                known = json.loads(self.succeeds("config", *([] if verb == "config" else words), "--json"))
                self.assertLessEqual({flag_of(name, verb) for name in known if verb not in ("config", "doctor")},
                                     {*flags_of(full), "--json", "--progress"})
                for same in (["help", *words], [*words, "help"], ["--help", *words], [*words, "-h"]):
                    self.assertEqual(self.succeeds(*same), brief)
                for same in (["help", *words, "all"], [*words, "help", "all"], [*words, "--help=all"],
                             [*words, "run.toml", "--help", "all"]):
                    self.assertEqual(self.succeeds(*same), full)
        for words in [*(verb.split() for verb in VERBS), *(["config", *verb.split()] for verb in VERBS)]:
            listed = words_of_flags(self.succeeds(*words, "--help", "all"))
            self.assertEqual(sorted(listed), sorted(set(listed)), words)
        both = self.succeeds("config", "--help", "all")
        self.assertIn("\n  --format table|", both)
        self.assertIn("\n  --dataset-format auto|", both)
        self.assertIn("--dataset-format: ", self.run_tessera("config", "--dataset-format", "a")[2])
        self.assertIn("\nCheckpoints:\n", self.succeeds("train", "--help", "all"))
        self.assertNotIn("--lr", flags_of(self.succeeds("generate", "--help", "all")))

    def test_examples_are_complete(self):
        self.write("run.toml", "")
        for verb in VERBS:
            example = example_of(self.succeeds(*verb.split(), "--help"))
            self.assertEqual(example[:len(verb.split())], verb.split())
            if verb == "config":
                self.succeeds(*example)
                continue
            self.succeeds("config", *example)
            for line in self.succeeds(*verb.split(), "--help").split("\nRequired:\n")[1:]:
                for flag in flags_of(line.split("\n\n")[0]):
                    self.assertIn(flag, example)

    def test_verbs_of_two_words(self):
        out = self.succeeds("tokenizer", "--help")
        self.assertEqual(self.succeeds("help", "tokenizer"), out)
        self.assertEqual(self.succeeds("tokenizer", "help"), out)
        self.assertIn("  tokenizer train  Make a new vocabulary", out)
        self.fails(2, "tokenizer: needs a second word. Write: tessera tokenizer train", "tokenizer")
        self.fails(2, "tokenizer: needs a second word. Write: tessera tokenizer train", "tokenizer", "--dataset", "a")
        self.fails(2, 'tokenizer trian: unknown verb. Did you mean "tokenizer train"?', "tokenizer", "trian")


class Verbs(CliTest):
    def test_unknown(self):
        self.fails(2, 'trian: unknown verb. Did you mean "train"? Use one of: train, eval, ', "trian", "--model", "a")
        self.fails(2, 'tokenizr train: unknown verb. Did you mean "tokenizer train"?', "tokenizr", "train")
        self.fails(2, "finetune: unknown verb. Use one of: train, eval, ", "finetune")
        self.fails(2, "--model: comes before the verb. Usage: tessera <verb>", "--model", "a", "train")

    def test_missing_settings_are_reported_at_once(self):
        self.fails(2, "train: needs --model, --dataset and --output-dir. Example: tessera train --model ", "train")
        self.fails(2, "train: needs --model and --output-dir. Example: ", "train", "--dataset", "a.json")
        self.fails(2, "--dataset: is required by train. Example: tessera train --model ", "train", "--model", "a",
                   "--dataset=", "--output-dir", "out")
        self.write("run.toml", 'model = "a"\noutput_dir = "out"\ndataset = ""\n')
        self.fails(2, "run.toml:3: dataset: is required by train. Example: ", "train", "run.toml")
        self.fails(2, "generate: needs --model, and --prompt, --question or --prompts. Example: tessera generate ", "generate")
        self.fails(2, "generate: needs --prompt, --question or --prompts. Example: tessera generate ", "generate", "--model", "a")


class Words(CliTest):
    def remedy(self, remedy, *words):
        self.fails(2, f"{remedy}\n", *words)

    def test_values_of_several_words(self):
        self.write("run.toml", "")
        for words in [["--dataset=a", "b"], ["run.toml", "--dataset=a", "b"], ["--dataset=a", "b", "c"]]:
            self.remedy("b: is neither a setting nor a configuration file. Write --dataset a b", "train", *words)
        self.remedy('Write --prompt "hello world"', "generate", "--prompt", "hello", "world")
        self.remedy("Write --offload optimizer,gradients", "train", "--offload", "optimizer", "gradients")
        self.remedy("Write --fit 32GiB", "plan", "--fit", "32", "GiB")
        self.remedy("--lr takes one value", "train", "--lr", "=", "5")

    def test_words_without_a_flag(self):
        self.remedy("Write --model bloom-560m", "plan", "bloom-560m")
        self.remedy("Write --model bloom-560m", "plan", "bloom-560m", "--nproc", "2")
        os.mkdir(os.path.join(self.folder, "folder"))
        self.write("folder/config.json", "{}")
        self.remedy("Write --model folder", "train", "folder")
        self.remedy("Write --dataset train.jsonl", "train", "train.jsonl")
        self.write("dev.json", "[]")
        self.remedy("Write --eval-dataset dev.json", "eval", "dev.json")
        self.fails(2, "dev.json: is neither a setting nor a configuration file (dev.json:1: is not TOML: ", "eval", "dev.json")
        self.remedy('Write --prompt "What is it?"', "generate", "What is it?")
        self.remedy("Write --lr=1e-4", "train", "lr=1e-4")
        self.remedy("Write --lr RATE", "train", "lr", "1e-4")
        self.remedy("Give one verb, as in: tessera eval --help", "train", "eval")
        self.remedy("b.toml: unexpected argument. Usage: tessera train [config.toml] [--flags]", "train", "a.toml", "b.toml")

    def test_flags_of_other_programs(self):
        self.remedy("--tf32: is not a setting of Tessera. Write --precision tf32, or only --precision bf16: its products use no "
                    "fp32", "eval", "--tf32", "true")
        for words, answer in [(["--use_peft"], "Write --adapter lora"),
                              (["--use-dora"], "DoRA is not supported"),
                              (["--load_in_4bit=True"], "Write --base-dtype nf4"),
                              (["--packing"], "a micro-batch always has its samples one after the other, without padding"),
                              (["--neftune_noise_alpha", "5"], "NEFTune is not supported"),
                              (["--torch-compile", "--lr", "1"], "needs no compiler at run time"),
                              (["--no-remove-unused-columns", "--label-smoothing-factor", "0.1"], "Label smoothing")]:
            self.fails(2, "is not a setting of Tessera. ", "train", *words)
            self.fails(2, answer, "train", *words)
        code, _, err = self.run_tessera("config", "train", "--do_train", "--dataloader_num_workers", "4", "--packing", "False",
                                        "--no_remove_unused_columns", "--lr", "1", "--overwrite", "True", "--shuffle", "false")
        self.assertEqual((code, err.count("has no effect"), err.count("\n")), (0, 4, 4), err)
        self.remedy("--full-shard: unknown flag. Write --strategy full_shard", "train", "--full-shard")
        self.remedy("--cpu: unknown flag. Write --device cpu", "train", "--cpu")
        self.write("run.toml", "tf32 = true\n")
        self.remedy('run.toml:1: tf32: is not a setting of Tessera. Write --precision tf32, or only --precision bf16: its products '
                    'use no fp32', "train", "run.toml")

    def test_flags_of_other_verbs(self):
        self.remedy("--lr: is not a setting of generate. It belongs to train and plan", "generate", "--lr", "1")
        self.remedy("--checkpoint: is not a setting of train. It belongs to export", "train", "--checkpoint", "a")

    def test_misspelt_flags(self):
        self.remedy('--leraning-rate: unknown flag. Did you mean "--learning-rate"?', "train", "--leraning-rate", "1")
        self.remedy("-lr: unknown flag. Write --lr RATE", "train", "-lr", "1")
        self.remedy("-no-shuffle: unknown flag. Write --no-shuffle", "train", "-no-shuffle")
        self.remedy("--no-lr: --lr is not a boolean setting. Write --lr RATE", "train", "--no-lr")
        self.remedy("--zzzz: unknown flag. See tessera train --help all", "train", "--zzzz")


class Values(CliTest):
    def test_booleans(self):
        self.fails(2, '--shuffle: must be true or false, got "". Write --shuffle or --no-shuffle', "config", "--shuffle=")
        self.fails(2, '--shuffle: must be true or false, got "maybe". Write --shuffle or --no-shuffle', "config",
                   "--shuffle=maybe")
        self.fails(2, "no: is neither a setting nor a configuration file. Write --no-shuffle", "train", "--shuffle", "no")
        self.fails(2, "maybe: is neither a setting nor a configuration file. Write --shuffle or --no-shuffle", "train",
                   "--shuffle", "maybe")

    def test_numbers(self):
        for words, message in [
            (["--max-length", "2k"], '--max-length: must be a whole number, got "2k". Write the number of TOKENS without a unit'),
            (["--comm-timeout", "10m"], '--comm-timeout: must be a number, got "10m". Write the number of SECONDS without'),
            (["--warmup-ratio", "10%"], '--warmup-ratio: must be a number, got "10%". Write a fraction, as in 0.1'),
            (["--lr", "1e-4x"], '--lr: must be a number, got "1e-4x". Write the number without a unit'),
            (["--fit", "32X"], '--fit: must be a number of bytes, got "32X". Write a number with a unit, for example 32GiB'),
            (["--fit", "32G"], '--fit: must be a number of bytes, got "32G". Write GiB (powers of 1024) or GB'),
            (["--lr="], '--lr: must be a number, got ""'),
            (["--precision="], '--precision: unknown value "". Use one of: auto, fp32, '),
            (["--device", "cuda:1"], '--device: "cuda:1" is not supported. Write --device cuda, and set'),
            (["--lr-scheduler-type", "greedy"], '--lr-schedule: "greedy" is not supported. The rate of a step must not'),
            (["--save-strategy", "best"], '--save-strategy: "best" is not supported. Give --load-best-model-at-end'),
            (["--optim", "adamw_8bit"], '--optim: "adamw_8bit" is not supported. The optimizer is AdamW'),
        ]:
            with self.subTest(words=words):
                self.fails(2, message, "config", *words)


if __name__ == "__main__":
    main()
