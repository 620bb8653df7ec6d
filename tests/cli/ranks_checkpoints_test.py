"""Tests checkpoints of several ranks: another number of ranks resumes them, they are damaged, or the disk is full. Also
tests offload to files."""
import os
import random
import resource
import shutil
import signal
import subprocess

from ranks_job import RUN_FAILED, TOLERANCE, RanksTest
from tessera_cli import main
from tiny_job import EVALUATED, ON_GPU, cut, flip_a_bit

# 12 steps with a checkpoint after every second step.
JOB = EVALUATED + ["--epochs", "6", "--save-strategy", "steps", "--save-steps", "2", "--save-total-limit", "0",
                   "--eval-strategy", "no"]


class Checkpoints(RanksTest):
    def train_ranks(self, output, *words, ranks=4, **options):
        return super().train_ranks(output, *words, ranks=ranks, job=JOB, **options)

    def copy(self, output, last, of="whole"):
        """Copies the run `of`. The copy looks like a run that was killed after the checkpoint of step `last`."""
        shutil.copytree(self.path(of), self.path(output))
        for step in self.checkpoints(output):
            if step > last:
                shutil.rmtree(self.path(output, f"checkpoint-{step}"))
        shutil.rmtree(self.path(output, "model"))


class Elsewhere(Checkpoints):
    def setUp(self):
        super().setUp()
        self.train_ranks("whole", "--strategy", "full_shard")
        self.assertEqual(self.checkpoints("whole"), [2, 4, 6, 8, 10, 12])

    def test_another_strategy_of_as_many_ranks(self):
        """Each run resumes from a checkpoint of full_shard with another strategy or offload. The run sums in the same
        order as full_shard, so it must give the same results. assert_same_sums() says when these may differ by
        rounding."""
        os.mkdir(self.path("files"))
        for words in [["--strategy", "zero2" if ON_GPU else "no_shard"], ["--strategy", "zero1", "--offload", "optimizer"],
                      ["--strategy", "full_shard", "--offload", "optimizer:file,gradients:file,parameters:file",
                       "--offload-dir", "files"]]:
            with self.subTest(words=words):
                self.copy("other", 6)
                self.train_ranks("other", *words)
                self.assert_same_sums("whole", "other", words)
                shutil.rmtree(self.path("other"))

    def test_other_numbers_of_ranks(self):
        words = ["--strategy", "full_shard"]
        losses = [record["loss"] for record in self.metrics("whole", "train")]
        before, writers = "whole", 4
        for ranks, last in (1, 4), (3, 6), (2, 10):
            # A run that resumes from the last checkpoint computes no step, and writes the same model files.
            shutil.copytree(self.path(before), self.path("same"))
            shutil.rmtree(self.path("same", "model"))
            err = self.train_ranks("same", *words, ranks=ranks)
            self.assertIn(f"The checkpoint was made by {writers} rank{'s' if writers > 1 else ''}, and this run has {ranks}", err)
            self.assertIn("same/checkpoint-12 (step 12 of 12)", err)
            for name in os.listdir(self.path(before, "model")):
                self.assertEqual(self.read("same", "model", name), self.read(before, "model", name), name)
            shutil.rmtree(self.path("same"))
            # A run that resumes in the middle would have other losses if its moments were wrong.
            output = f"on-{ranks}"
            self.copy(output, last, of=before)
            self.train_ranks(output, *words, ranks=ranks)
            for record, loss in zip(self.metrics(output, "train"), losses, strict=True):
                self.assertLess(abs(record["loss"] - loss), TOLERANCE * loss, (ranks, record))
            before, writers = output, ranks

    def test_8_bit_states_on_other_numbers_of_ranks(self):
        """Blocks of moments in 8 bits move to other ranks without a change of their bytes."""
        words = ["--optimizer-states", "8bit", "--strategy", "full_shard"]
        self.train_ranks("blocks", *words)
        for ranks, more in (1, []), (3, ["--offload", "optimizer"]), (2, ["--strategy", "no_shard"]):
            shutil.copytree(self.path("blocks"), self.path("same"))
            shutil.rmtree(self.path("same", "model"))
            self.train_ranks("same", *words, *more, "--save-steps", "1", "--max-steps", "13", ranks=ranks)
            self.assertEqual(self.checkpoints("same")[-1], 13)
            loss = self.metrics("same", "train")[-1]["loss"]
            shutil.rmtree(self.path("same"))
            if ranks == 1:
                expected = loss
            self.assertLess(abs(loss - expected), TOLERANCE * expected, ranks)
            self.copy("middle", 6, of="blocks")
            self.train_ranks("middle", *words, *more, ranks=ranks)
            for record, whole in zip(self.metrics("middle", "train"), self.metrics("blocks", "train"), strict=True):
                # Sums in another order may move a moment to a neighbouring code.
                self.assertLess(abs(record["loss"] - whole["loss"]), 100 * TOLERANCE * whole["loss"], (ranks, record))
            shutil.rmtree(self.path("middle"))

    def test_another_global_batch(self):
        self.copy("other", 6)
        code, err = self.start("other", "--strategy", "full_shard", "--batch-size", "3", ranks=2, job=JOB).end()
        self.assertEqual(code, 2, err)
        self.assert_one_error(err, "rank [01]: .*batch_size x grad_accum x ranks = 12, and this run has 6")

    def test_export(self):
        self.succeeds("export", "--model", "config.json", "--tokenizer", "tok", "--checkpoint", "whole/checkpoint-12",
                      "--output-dir", "exported")
        for name in os.listdir(self.path("whole", "model")):
            self.assertEqual(self.read("exported", name), self.read("whole", "model", name), name)


class ByTokens(Checkpoints):
    """With --batch-tokens, a step has the same samples, no matter how ranks and accumulation divide it into
    micro-batches."""

    def test_another_division_continues(self):
        words = ["--strategy", "full_shard", "--batch-tokens", "150", "--max-length", "128"]
        self.train_ranks("whole", *words)
        for ranks, accum, last in (1, 4, 2), (2, 2, 6):
            output = f"on-{ranks}"
            self.copy(output, last)
            self.train_ranks(output, *words, "--grad-accum", str(accum), ranks=ranks)
            self.assert_near("whole", output)
        self.copy("other", 6)
        code, err = self.start("other", *words, ranks=2, job=JOB).end()
        self.assertEqual(code, 2, err)
        self.assert_one_error(err, "rank [01]: .*grad_accum x ranks = 4, and this run has 2")


class Continued(Checkpoints):
    def test_longer_elsewhere_and_overwritten(self):
        for ranks in 2, 4:
            with self.subTest(ranks=ranks):
                words = ["--strategy", "full_shard", "--lr-schedule", "constant"]
                self.train_ranks("whole", *words, ranks=ranks)
                self.train_ranks("out", *words, "--epochs", "3", ranks=ranks)
                err = self.train_ranks("out", *words, ranks=ranks)
                self.assertIn("The run has 12 steps now instead of 6. "
                              "The learning rate does not depend on the number of steps", err)
                self.assert_same_results("whole", "out")
                self.train_ranks("new", *words, "--resume", "whole/checkpoint-6", ranks=ranks)
                self.assert_same_results("whole", "new")
                for refused in ["--lr", "2e-2"], ["--resume", "none"], ["--resume", "whole/checkpoint-6"]:
                    code, err = self.start("out", *words, *refused, ranks=ranks, job=JOB).end()
                    self.assertEqual(code, 2, err)
                    self.assert_one_error(err, ".*out.*--overwrite to replace")
                self.assert_same_results("whole", "out")
                other = [*words, "--lr", "2e-2"]
                self.train_ranks("other", *other, ranks=ranks)
                self.train_ranks("out", *other, "--overwrite", ranks=ranks)
                self.assert_same_results("other", "out")
                self.assertEqual(self.set_aside("out"), [])
                self.assert_tidy("out")
                for output in "whole", "out", "new", "other":
                    shutil.rmtree(self.path(output))

    def test_stops(self):
        """When a signal stops a run, the run saves a checkpoint. The resumed run removes this checkpoint when it saves
        the next one, no matter which process got the signal. Regular checkpoints are at multiples of 7 steps."""
        for ranks in 2, 4:
            lines = 10
            for rank in 1, None, 0:
                run = self.start("out", "--save-total-limit", "2", "--eval-strategy", "no", ranks=ranks)
                run.process_of(ranks - 1)
                self.assertTrue(self.wait_until(run, lambda: self.num_lines("out") >= lines))
                self.assertTrue(self.wait_until(run, lambda: lines == 10 or "Resuming" in run.text()))
                self.assertTrue(run.signal(rank, signal.SIGTERM))
                code, err = run.end()
                self.assertEqual(code, 75, err)
                self.assertLessEqual(len([step for step in self.checkpoints("out") if step % 7]), 1)
                self.assertLessEqual(len(self.checkpoints("out")), 3)
                lines = self.num_lines("out") + 20
            RanksTest.train_ranks(self, "out", "--save-total-limit", "2", "--eval-strategy", "no", ranks=ranks)
            self.assertEqual([step for step in self.checkpoints("out") if step % 7], [200])  # saved by the last step
            shutil.rmtree(self.path("out"))


class Damage(Checkpoints):
    def setUp(self):
        super().setUp()
        self.train_ranks("whole", "--strategy", "full_shard", ranks=3)

    def test_any_file(self):
        """If a file of the last checkpoint has a flipped bit, is cut or is missing, the run warns and uses the previous
        checkpoint."""
        source = random.Random(6)

        def flip(path):
            flip_a_bit(path, source)

        names = sorted(os.listdir(self.path("whole", "checkpoint-12")))
        ranks = [f"rank-0000{r}-of-00003.safetensors" for r in range(3)]
        self.assertEqual(names, ["config.json", "manifest.json", *ranks, "tokenizer.json", "tokenizer_config.json",
                                 "trainer_state.json"])
        for name, damage in [("manifest.json", flip), (ranks[0], flip), (ranks[1], flip), ("tokenizer.json", flip),
                             ("trainer_state.json", flip), (ranks[1], cut), (ranks[2], os.remove)]:
            with self.subTest(name=name, damage=damage.__name__):
                self.copy("out", 12)
                damage(self.path("out", "checkpoint-12", name))
                err = self.train_ranks("out", "--strategy", "full_shard", "--save-total-limit", "1", ranks=3)
                self.assertRegex(err, rf"(?m)^warning: .*out/checkpoint-12/{name}")
                self.assertIn("Resuming from out/checkpoint-10 ", err)
                self.assert_same_results("whole", "out")
                self.assertEqual(self.checkpoints("out"), [12])
                shutil.rmtree(self.path("out"))

    def test_every_checkpoint(self):
        self.copy("out", 4)
        for step in (2, 4):
            os.remove(self.path("out", f"checkpoint-{step}", "rank-00001-of-00003.safetensors"))
        code, err = self.start("out", ranks=3, job=JOB).end()
        self.assertEqual((code, err.count("warning: ")), (3, 2), err)
        self.assert_one_error(err, "rank [012]: out: has checkpoints, but every one of them is damaged")
        self.assertEqual(self.checkpoints("out"), [2, 4])


class FullDisk(Checkpoints):
    JOB = ["--save-strategy", "steps", "--save-steps", "7", "--save-total-limit", "1"]

    def test_of_one_rank(self):
        """The run keeps the last good checkpoint and removes the failed one. When the disk has space again, the next
        start continues the run. In this test, a limit on the size of rank 1's files replaces the full disk."""
        for words in [], ["--save-async"]:
            words = ["--strategy", "full_shard", *words]
            self.train_ranks_long("whole", *words)
            run = self.start("out", *words, *self.JOB, ranks=3)
            self.assertTrue(self.wait_until(run, lambda: os.path.isdir(self.path("out", "checkpoint-7"))))
            resource.prlimit(run.process_of(1), resource.RLIMIT_FSIZE, (20000, 20000))
            code, err = run.end()
            self.assertEqual(code, RUN_FAILED, err)
            self.assert_one_error(err, r".*rank 1: .*checkpoint-\d+.*rank-00001-of-00003.safetensors.*"
                                       "Raise the limit on file sizes.*in phase")
            self.assert_tidy("out")
            self.assertEqual(len(self.checkpoints("out")), 1)
            self.train_ranks_long("out", *words)
            self.assert_same_results("whole", "out")
            for output in "whole", "out":
                shutil.rmtree(self.path(output))

    def train_ranks_long(self, output, *words):
        RanksTest.train_ranks(self, output, *words, *self.JOB, ranks=3)

    def test_of_all_ranks(self):
        os.mkdir(self.path("disk"))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", self.path("disk")],
                                 stderr=subprocess.DEVNULL, check=False) if shutil.which("mount") else None
        if not mounted or mounted.returncode != 0:
            self.skipTest("no permission to mount a small disk")
        self.addCleanup(subprocess.run, ["umount", "-l", self.path("disk")], check=True)
        self.train_ranks("whole")
        code, err = self.start("disk/out", ranks=4, job=JOB).end()
        self.assertEqual(code, RUN_FAILED, err)
        self.assert_one_error(err, r".*rank \d: .*No space left on device")
        self.assert_tidy("disk/out")
        self.assertGreater(len(self.checkpoints("disk/out")), 0)
        subprocess.run(["mount", "-o", "remount,size=4m", self.path("disk")], check=True)
        self.train_ranks("disk/out")
        self.assert_same_results("whole", "disk/out")


class Offload(Checkpoints):
    WORDS = ["--strategy", "full_shard", "--offload", "optimizer:file,parameters:file", "--offload-dir"]

    def test_a_folder_that_cannot_be_used(self):
        self.write("file", "")
        code, err = self.start("out", *self.WORDS, "file", ranks=2, job=JOB).end()
        self.assertEqual(code, RUN_FAILED, err)
        self.assert_one_error(err, r"rank [01]: file: .*--offload-dir")

    def test_a_full_disk(self):
        os.mkdir(self.path("files"))
        limit = (16384, 16384)
        code, _, err = self.run_tessera("train", *JOB, "--output-dir", "out", *self.WORDS, "files",
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
        self.assertEqual(code, RUN_FAILED, err)
        self.assert_one_error(err, "files: the file of offloaded arrays cannot be created: File too large.*--offload-dir")
        self.assertEqual(os.listdir(self.path("files")), [])

    def test_nothing_is_left_behind(self):
        os.mkdir(self.path("files"))
        run = self.start("out", *self.WORDS, "files", ranks=2)
        self.assertTrue(self.wait_until(run, lambda: self.num_lines("out") >= 20))
        self.assertTrue(run.signal(0, signal.SIGKILL))
        run.end()
        self.assertEqual(os.listdir(self.path("files")), [])


if __name__ == "__main__":
    main()
