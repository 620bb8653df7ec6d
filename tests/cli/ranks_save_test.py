"""Several ranks save a model together. They write the same model folder as one rank does. If a rank fails, they leave
no model folder."""
import errno
import os
import shutil

from ranks_job import RUN_FAILED, RanksTest
from tessera_cli import PROGRAM, main
from tiny_job import JOB

LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")
# The last checkpoint contains the final model. Runs that resume from it compute nothing, and save this model.
# --max-shard-size divides the model into several weight files.
SAVING = [*JOB, "--max-steps", "2", "--save-strategy", "steps", "--save-steps", "2", "--max-shard-size", "8kB"]


class Save(RanksTest):
    def begin(self, *words):
        self.train_ranks("one", *words, ranks=1, job=SAVING)
        shutil.copytree(self.path("one"), self.path("unsaved"))
        shutil.rmtree(self.path("unsaved", "model"))
        self.assertGreater(len(os.listdir(self.path("one", "model"))), 6)

    def assert_same_model(self, output):
        self.assertEqual(sorted(os.listdir(self.path(output, "model"))), sorted(os.listdir(self.path("one", "model"))))
        for name in os.listdir(self.path("one", "model")):
            self.assertEqual(self.read(output, "model", name), self.read("one", "model", name), name)

    def resume(self, ranks, *words, **options):
        shutil.rmtree(self.path("out"), ignore_errors=True)
        shutil.copytree(self.path("unsaved"), self.path("out"))
        return self.start("out", *words, ranks=ranks, job=SAVING, **options).end()

    def test_the_folder_of_one_rank(self):
        os.mkdir(self.path("files"))
        files = ["--offload", "optimizer:file,gradients:file,parameters:file", "--offload-dir", "files"]
        for start, saves in [
                ([], [(2, "no_shard"), (2, "zero1"), (3, "full_shard"), (4, "full_shard", *files),
                      (4, "hybrid_shard", "--ranks-per-node", "2"), (4, "zero2", "--offload", "optimizer")]),
                # A run with --precision bf16 keeps the fp32 value of each parameter in two halves. Saving joins the
                # halves and rounds only to the type of the file, so every number of ranks saves the same bits.
                (["--precision", "bf16"], [(2, "full_shard"), (4, "zero1", "--offload", "optimizer")]),
                (["--precision", "bf16", "--save-dtype", "fp16"], [(4, "hybrid_shard_zero2", "--ranks-per-node", "2")])]:
            self.begin(*start, "--resume", "none", "--overwrite")
            for ranks, strategy, *words in saves:
                with self.subTest(start=start, ranks=ranks, strategy=strategy, words=words):
                    code, err = self.resume(ranks, *start, "--strategy", strategy, *words)
                    self.assertEqual(code, 0, err)
                    self.assertIn("(step 2 of 2)", err)
                    self.assert_same_model("out")
                    self.assert_tidy("out")
            shutil.rmtree(self.path("unsaved"))

    def test_a_rank_that_cannot_write(self):
        """All ranks end with the error of the failing rank, and leave no model folder. A new run saves the model."""
        self.begin()
        for rank, calls, path in [(1, "pwrite", "/model.tmp-"), (0, "pwrite", "/model.tmp-"), (1, "fsync", "/model.tmp-"),
                                  (1, "open_write", "model-00002-of"), (0, "rename", "/out/model")]:
            with self.subTest(rank=rank, calls=calls):
                env = {"LD_PRELOAD": LIBRARY, "FAULT_RANK": str(rank), "FAULT_CALLS": calls, "FAULT_PATH": path,
                       "FAULT_CALL": "1", "FAULT_TIMES": str(10 ** 6), "FAULT_KIND": f"error {errno.ENOSPC}",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"}
                code, err = self.resume(2, "--strategy", "full_shard", env=env)
                self.assertEqual(code, RUN_FAILED, err)
                self.assert_one_error(err, rf".*rank {rank}: .*/model.*No space left on device")
                self.assertFalse(os.path.exists(self.path("out", "model")))
                self.assert_tidy("out")
        self.train_ranks("out", "--strategy", "full_shard", ranks=2, job=SAVING)
        self.assert_same_model("out")


if __name__ == "__main__":
    main()
