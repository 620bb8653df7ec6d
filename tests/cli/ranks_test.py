"""With every strategy and every way to start ranks, several ranks compute the same results as one process, except for
rounding."""
import json
import math
import os
import shutil

from ranks_job import MPIRUN, TOLERANCE, RanksTest, Run, mpirun
from tessera_cli import PROGRAM, main
from tiny_job import EVALUATED, ON_GPU, read_tensors, safetensors

STRATEGIES = ["no_shard", "zero1", "zero2", "shard_grad_op", "full_shard", "hybrid_shard", "hybrid_shard_zero2"]
# Training has 22 samples in steps of 12, and evaluation has 7 questions in batches of 2, so the ranks get unequal
# shares. After 4 epochs, some generated answers are right. Otherwise the tests would compare only F1 values of 0.
JOB = EVALUATED + ["--epochs", "4", "--eval-strategy", "steps", "--eval-steps", "2", "--eval-before",
                   "--eval-batch-size", "2", "--save-strategy", "no"]

EVAL = ["eval", "--model", "config.json", "--init", "random", "--tokenizer", "tok", "--eval-dataset", "eval.jsonl",
        "--threads", "1"]


class Exactness(RanksTest):
    def setUp(self):
        super().setUp()
        self.train("plain", "--batch-size", "12", job=JOB)
        self.assertGreater(max(record["f1"] for record in self.metrics("plain", "eval")), 0)

    def check_world(self, ranks):
        groups = ["--shard-group-size", "2"] if ranks == 4 else []
        # {order of summation: the output folder of the first run with this order}. Two groups of 2 ranks sum in another
        # order than one group of 4 ranks. NCCL's all_reduce sums in another order than its reduce_scatter.
        first = {}
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                words = ["--strategy", strategy, *(groups if strategy.startswith("hybrid") else [])]
                output = f"{strategy}-{ranks}"
                self.train_ranks(output, *words, ranks=ranks, job=JOB)
                summary = self.json_of(output, "summary.json")
                self.assertEqual((summary["world_size"], summary["strategy"]), (ranks, strategy))
                self.assert_near("plain", output)
                apart = ON_GPU and ranks > 2 and strategy == "no_shard"
                other = first.setdefault((apart, *words[2:]), output)
                self.assert_same_results(other, output)
                if other != output:
                    shutil.rmtree(self.path(output))

    def test_one_rank(self):
        self.check_world(1)
        self.assert_same_results("plain", "no_shard-1")

    def test_two_ranks(self):
        self.check_world(2)

    def test_three_ranks(self):
        self.check_world(3)

    def test_four_ranks(self):
        self.check_world(4)

    def test_ways_to_the_same_sums(self):
        """Strategy, prefetch, activation checkpointing, buckets, offload and --sync-module-states do not change any bit
        of the results. assert_same_sums() knows one exception on GPUs."""
        self.train_ranks("two", "--strategy", "full_shard", ranks=2, job=JOB)
        os.mkdir(self.path("files"))
        files = ["--offload-dir", "files", "--offload"]
        for i, words in enumerate([
            ["--strategy", "full_shard"],
            ["--strategy", "zero3", "--activation-checkpointing", "block", "--forward-prefetch"],
            ["--strategy", "full_shard", "--backward-prefetch", "none", "--max-units-in-flight", "1",
             "--activation-checkpointing", "1"],
            ["--strategy", "zero0", "--reduce-bucket-size", "1KiB", "--activation-checkpointing", "mlp,attention"],
            ["--strategy", "zero1", "--offload", "optimizer", "--no-pin-memory"],
            ["--strategy", "full_shard", *files, "optimizer:file,gradients:file,parameters:file"],
            ["--strategy", "shard_grad_op", "--offload", "optimizer,parameters", "--sync-module-states"],
        ]):
            with self.subTest(words=words):
                err = self.train_ranks(f"other-{i}", *words, job=JOB)
                self.assert_same_sums("two", f"other-{i}", words)
                offloads = not ON_GPU and any(word.startswith("optimizer") and ":file" not in word for word in words)
                self.assertEqual(err.count("device and host share the same memory"), int(offloads))
        self.assertEqual(os.listdir(self.path("files")), [])

    def test_parameters_of_a_file(self):
        """The results are the same whether each rank reads its own parts of the file or rank 0 reads the file for all
        ranks (--sync-module-states)."""
        job = ["--model", "plain/model", *JOB[4:]]  # without --init random
        self.assertEqual(JOB[2:4], ["--init", "random"])
        self.train("alone", "--batch-size", "12", job=job)
        self.assertNotEqual(self.metrics("alone", "train")[0]["loss"], self.metrics("plain", "train")[0]["loss"])
        self.train_ranks("each", "--strategy", "zero2" if ON_GPU else "no_shard", ranks=3, job=job)
        for key in ["loss", "grad_norm"]:
            first, plain = self.metrics("each", "train")[0], self.metrics("alone", "train")[0]
            self.assertTrue(math.isclose(first[key], plain[key], rel_tol=TOLERANCE), (first, plain))
        for i, words in enumerate([["--strategy", "full_shard"], ["--strategy", "full_shard", "--sync-module-states"],
                                   ["--strategy", "zero1", "--offload", "optimizer", "--sync-module-states"]]):
            with self.subTest(words=words):
                self.train_ranks(f"other-{i}", *words, ranks=3, job=job)
                self.assert_same_sums("each", f"other-{i}", words)

    def test_evaluation_on_its_own(self):
        words = ["eval", "--model", "plain/model", "--eval-dataset", "eval.jsonl", "--eval-generation", "--max-new-tokens",
                 "5", "--eval-batch-size", "2", "--threads", "1", "--json", "--output-dir"]
        alone = json.loads(self.succeeds(*words, "alone"))
        for ranks, strategy in (2, "full_shard"), (3, "zero2"), (4, "shard_grad_op"), (4, "full_shard"):
            with self.subTest(ranks=ranks, strategy=strategy):
                several = json.loads(self.succeeds(*words, "several", "--nproc", str(ranks), "--strategy", strategy))
                self.assertTrue(math.isclose(several["eval_loss"], alone["eval_loss"], rel_tol=TOLERANCE))
                for key in ["exact_match", "f1"]:
                    self.assertEqual(several[key], alone[key])
                self.assertEqual(self.json_of("several", "predictions.json"), self.json_of("alone", "predictions.json"))

    def test_generation_on_its_own(self):
        prompts = [{"prompt": text} for text in ["Who", "Where does Arlo live", "a", "b", "Who"]]
        self.write("prompts.jsonl", "".join(json.dumps(row) + "\n" for row in prompts))
        words = ["generate", "--model", "plain/model", "--prompts", "prompts.jsonl", "--temperature", "1.2", "--top-p",
                 "0.95", "--max-new-tokens", "8", "--threads", "1"]
        alone = self.succeeds(*words)
        for ranks, strategy, size in (2, "full_shard", 2), (3, "no_shard", 1), (4, "full_shard", 8):
            with self.subTest(ranks=ranks, strategy=strategy):
                more = ["--nproc", str(ranks), "--strategy", strategy, "--eval-batch-size", str(size)]
                self.assertEqual(self.succeeds(*words, *more), alone)
        one = ["generate", "--model", "plain/model", "--prompt", "Who", "--top-k", "50", "--threads", "1"]
        self.assertEqual(self.succeeds(*one, "--nproc", "2", "--strategy", "full_shard", "--stream", "on"),
                         self.succeeds(*one))

    def test_deepspeeds_configuration(self):
        self.write("ds.json", json.dumps({"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2,
                                          "zero_optimization": {"stage": 3}, "gradient_clipping": 0.5}))
        run = Run([PROGRAM, "train", *JOB, "--output-dir", "ds", "--nproc", "3", "--deepspeed", "ds.json"], self.folder)
        self.addCleanup(run.destroy)
        code, err = run.end()
        self.assertEqual(code, 0, err)
        self.train_ranks("flags", "--strategy", "zero3", "--batch-size", "2", "--grad-accum", "2", "--max-grad-norm",
                         "0.5", ranks=3, job=JOB)
        self.assert_same_results("ds", "flags")

    def test_accumulation(self):
        for strategy in ["no_shard", "full_shard"]:
            outputs = [f"{strategy}-{sync}" for sync in ["micro", "step"]]
            for sync, output in zip(["micro", "step"], outputs):
                self.train_ranks(output, "--strategy", strategy, "--grad-sync", sync, "--batch-size", "2",
                                 "--grad-accum", "3", job=JOB)
                self.assert_near("plain", output)


class Start(RanksTest):
    def run_mpirun(self, *words, program=PROGRAM, ranks=3, folder=None):
        """Runs a program under mpirun. Returns the exit code and standard error."""
        run = Run([*MPIRUN, "-n", str(ranks), program, *words], folder or self.folder)
        self.addCleanup(run.destroy)
        return run.end()

    def test_mpirun(self):
        self.train_ranks("nproc", ranks=3, job=JOB)
        words = [word for word in self.words("mpirun", ranks=3, job=JOB) if word not in ["--nproc", "3"]]
        code, err = self.run_mpirun(*words)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.json_of("mpirun", "summary.json")["world_size"], 3)
        self.assert_same_results("nproc", "mpirun")

    def test_one_rank_of_mpirun(self):
        code, err = self.run_mpirun("train", *JOB, "--output-dir", "out", ranks=1)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.json_of("out", "summary.json")["world_size"], 1)

    def test_more_ranks_than_cores(self):
        self.train_ranks("out", "--strategy", "full_shard", ranks=4, job=JOB,
                         preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
        self.assertEqual(self.json_of("out", "summary.json")["world_size"], 4)

    def assert_one_error(self, err, pattern):
        """Asserts that exactly one line is an error. mpirun may print other lines."""
        errors = [line for line in err.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(errors), 1, err)
        self.assertRegex(errors[0], pattern)

    def test_another_number_of_ranks(self):
        code, err = self.run_mpirun(*self.words("out", ranks=2, job=JOB))
        self.assertEqual(code, 2, err)
        self.assert_one_error(err, "--nproc: 2 contradicts the 3 ranks that (mpirun|torchrun) has started")

    def run_differing(self, script, *words):
        """Runs three ranks. Rank 2 runs `script`, with the program and its arguments in "$@". If `script` does not end
        with an exec, rank 2 then runs the program. The other ranks only run the program."""
        condition = f'if [ "${mpirun.RANK_VARIABLE}" = 2 ]; then'
        path = self.write("one_differs", f'#!/bin/sh\n{condition} {script}; fi\nexec "$@"\n')
        os.chmod(path, 0o755)
        return self.run_mpirun(PROGRAM, *words, program=path)

    def differing(self, script, words=("train", *JOB, "--output-dir", "out")):
        code, err = self.run_differing(script, *words)
        self.assertEqual(code, 2, err)
        self.assertFalse(os.path.exists(self.path("out", "metrics.jsonl")))
        return err

    def test_another_setting(self):
        for words, message in [("--lr 0.02", "lr: is 0.01 on rank 0, but 0.02 on rank 2"),
                               ("--strategy hybrid_shard --shard-group-size 1",
                                'strategy: is "no_shard" on rank 0, but "hybrid_shard" on rank 2'),
                               ("--dataset a.jsonl",
                                r'dataset: is "train.jsonl" on rank 0, but \["train.jsonl", "a.jsonl"\] on rank 2'),
                               ("--save-async", "save_async: is false on rank 0, but true on rank 2"),
                               ("--comm-timeout 5", "comm_timeout: is 600.0 on rank 0, but 5.0 on rank 2")]:
            with self.subTest(words=words):
                self.assert_one_error(self.differing(f'exec "$@" {words}'), message)
        self.assert_one_error(self.differing('shift 2; exec ' + PROGRAM + ' eval --model config.json --init random '
                                             '--tokenizer tok --eval-dataset eval.jsonl'),
                              'verb: is train on rank 0, but eval on rank 2')

    def test_other_data_or_another_model_of_the_same_name(self):
        os.mkdir(self.path("elsewhere"))
        for name in ["train.jsonl", "eval.jsonl", "config.json"]:
            shutil.copy(self.path(name), self.path("elsewhere"))
        shutil.copytree(self.path("tok"), self.path("elsewhere", "tok"))
        for name, old, new, message in [
            ("train.jsonl", b"miner", b"pilot", "dataset_checksum: is .* on rank 0, but .* on rank 2"),
            ("eval.jsonl", b"tailor", b"trader", "eval_data_checksum: is .* on rank 0, but .* on rank 2"),
            ("config.json", b'"n_head": 2', b'"n_head": 4', "num_heads: is 2 on rank 0, but 4 on rank 2"),
        ]:
            with self.subTest(name=name):
                text = self.read(name)
                self.assertIn(old, text)
                self.write(f"elsewhere/{name}", text.replace(old, new))
                self.assert_one_error(self.differing("cd elsewhere"), message)
                if name != "train.jsonl":
                    self.assert_one_error(self.differing("cd elsewhere", EVAL), message)
                self.write(f"elsewhere/{name}", text)

    def elsewhere(self):
        """Trains first/model, and copies the model and the data to elsewhere/, as if elsewhere/ were on another node.
        Returns the arguments of a training run. The caller must append the name of the output folder."""
        self.train("first", "--max-steps", "1", job=JOB)
        for folder in [["first", "model"], ["tok"]]:
            shutil.copytree(self.path(*folder), self.path("elsewhere", *folder))
        for name in ["train.jsonl", "eval.jsonl"]:
            shutil.copy(self.path(name), self.path("elsewhere"))
        return ["train", "--model", "first/model", *JOB[4:], "--batch-size", "4", "--output-dir"]

    def test_another_program(self):
        self.write("another", self.read(PROGRAM) + b"\0")
        os.chmod(self.path("another"), 0o755)
        self.assert_one_error(self.differing('shift; exec ./another "$@"'),
                              "program_checksum: is .* on rank 0, but .* on rank 2")

    def test_other_weights(self):
        train = self.elsewhere()
        self.train("second", "--max-steps", "2", job=JOB)
        shutil.copy(self.path("second", "model", "model.safetensors"), self.path("elsewhere", "first", "model"))
        for words in [*train, "out"], ["eval", "--model", "first/model", *EVAL[EVAL.index("--eval-dataset"):]]:
            self.assert_one_error(self.differing("cd elsewhere", words),
                                  "weights_checksum: is .* on rank 0, but .* on rank 2")

    def test_a_head_that_differs_from_the_embedding(self):
        """The tensors of the head and the embedding differ only in the first byte, or only in the last byte. Any rank
        may report this. Equal tensors give no error."""
        words = self.elsewhere()
        path = self.path("first", "model", "model.safetensors")
        tensors = read_tensors(path)
        dtype, shape, data = tensors["transformer.word_embeddings.weight"]
        for place in 0, len(data) - 1:
            head = bytes(byte ^ (i == place) for i, byte in enumerate(data))
            self.write(path, safetensors({**tensors, "lm_head.weight": (dtype, shape, head)}))
            code, err = self.run_mpirun(*words, "out")
            self.assertEqual(code, 3, err)
            self.assert_one_error(err, r'rank \d: first/model/model.safetensors: tensor "lm_head.weight" is not equal')
        self.write(path, safetensors({**tensors, "lm_head.weight": (dtype, shape, data)}))
        self.assertEqual(self.run_mpirun(*words, "out")[0], 0)

    def test_only_the_first_rank_has_the_weights(self):
        words = self.elsewhere()
        os.remove(self.path("elsewhere", "first", "model", "model.safetensors"))
        words[-1:] = ["--strategy", "full_shard", "--sync-module-states", "--output-dir"]
        code, err = self.run_mpirun(*words, "whole")
        self.assertEqual(code, 0, err)
        code, err = self.run_differing("cd elsewhere", *words, "out")
        self.assertEqual(code, 0, err)
        self.assert_same_results("whole", "out")
        words.remove("--sync-module-states")
        code, err = self.run_differing("cd elsewhere", *words, "out", "--resume", "none", "--overwrite")
        self.assertEqual(code, 3, err)
        self.assert_one_error(err, "rank 2: first/model")


if __name__ == "__main__":
    main()
