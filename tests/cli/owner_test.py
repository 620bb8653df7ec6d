"""Two runs with one output folder: on two nodes that share the folder, and on one node where flock() fails."""
import json
import os
import shutil
import signal
import subprocess
import time

from continue_test import Continued
from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import JOB, USAGE, jsonl, questions, with_last_data

TIMEOUT_S = 3.0  # --owner-timeout
LIBRARY = os.path.join(os.path.dirname(PROGRAM), "tests", "libfault_at_call.so")


class Owner(Continued):
    def setUp(self):
        super().setUp()
        self.write("many.jsonl", jsonl(questions(22, 1) * 400))
        self.job = with_last_data(JOB + ["--dataset", "many.jsonl", "--save-strategy", "steps", "--save-steps", "5",
                                         "--owner-timeout", str(TIMEOUT_S)])

    def on_host(self, name):
        """Returns words to put before a command. With these words, the command runs as on another host: the host name
        is `name`, and the command has no network."""
        words = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-u", "-n", "sh", "-c",
                 f'hostname {name} && exec "$@"', "sh"]
        tried = subprocess.run([*words, "true"], stderr=subprocess.DEVNULL, check=False) if shutil.which("unshare") else None
        if not tried or tried.returncode != 0:
            self.skipTest("no permission for namespaces")
        return words

    def start_on(self, before, *words, env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_")}
        process = subprocess.Popen([*before, PROGRAM, "train", *self.job, "--output-dir", "out", *words], cwd=self.folder,
                                   env={**clean, **(env or {})}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for_checkpoint(self, process):
        while not os.path.isdir(self.path("out")) or not self.checkpoints("out"):
            self.assertIsNone(process.poll())
            time.sleep(0.001)

    def owner(self):
        return self.json_of("out", ".tessera-lock")

    def end(self, process):
        _, err = process.communicate(timeout=RUN_LIMIT_S)
        return process.returncode, err.decode()

    def test_two_nodes(self):
        first = self.start_on(self.on_host("node-a"))
        self.wait_for_checkpoint(first)
        self.assertEqual((self.owner()["host"], self.owner()["process"]), ("node-a", first.pid))
        # The first run is alive. The second run sees a heartbeat of the first run and ends.
        code, err = self.end(self.start_on(self.on_host("node-b")))
        self.assertEqual(code, USAGE, err)
        self.assertIn(f"error: out: is in use by another run (process {first.pid} on node-a)", err)
        # The first run is killed, as if its node were lost. The test adds an incomplete checkpoint of this run. The job
        # starts again on another node. The second run sees no heartbeat of the first run for --owner-timeout.
        # Then it removes the incomplete checkpoint and continues the training.
        first.kill()
        first.wait()
        leftover = self.path("out", f"checkpoint-99.tmp-node-a-{first.pid}-{self.owner()['start_time']}")
        os.mkdir(leftover)
        second = self.start_on(self.on_host("node-b"))
        while self.owner()["host"] != "node-b":
            self.assertIsNone(second.poll())
            time.sleep(0.01)
        second.send_signal(signal.SIGTERM)
        code, err = self.end(second)
        self.assertEqual(code, 75, err)
        self.assertIn(f"out belongs to process {first.pid} on node-a. Waiting for a new heartbeat of that run. Without one "
                      "for 3 s, this run takes the folder (--owner-timeout)", err)
        self.assertIn("Resuming from out/checkpoint-", err)
        self.assertFalse(os.path.exists(leftover))
        self.assert_tidy("out")

    def test_stopped_while_it_waits(self):
        first = self.start_on(self.on_host("node-a"))
        self.wait_for_checkpoint(first)
        first.kill()
        first.wait()
        second = self.start_on(self.on_host("node-b"), "--owner-timeout", "100")
        time.sleep(0.3)
        second.send_signal(signal.SIGTERM)
        code, err = self.end(second)
        self.assertEqual(code, 75, err)
        self.assertEqual(self.owner()["host"], "node-a")

    def test_a_node_that_comes_back(self):
        """The run on the first node was paused, and another run has taken over the folder. When the first run
        continues, it ends before it writes a checkpoint."""
        first = self.start_on(self.on_host("node-a"))
        self.wait_for_checkpoint(first)
        first.send_signal(signal.SIGSTOP)
        second = self.start_on(self.on_host("node-b"))
        while self.owner()["host"] != "node-b":
            self.assertIsNone(second.poll())
            time.sleep(0.01)
        first.send_signal(signal.SIGCONT)
        code, err = self.end(first)
        self.assertEqual(code, 1, err)
        self.assertRegex(err, "error: out: was taken over by another run .* because this run sent no heartbeat for 3 s")
        self.assertIsNone(second.poll())
        self.assertEqual(self.owner()["host"], "node-b")

    def test_an_incomplete_owner_file(self):
        os.makedirs(self.path("out"))
        self.write("out/.tessera-lock", "{}")
        code, err = self.end(self.start_on([], "--owner-timeout", "0.2", "--max-steps", "1"))
        self.assertEqual(code, 0, err)
        self.assertIn('out has an incomplete owner file: .tessera-lock has no "host". Waiting for its owner. Without a change for '
                      "0.2 s, this run takes the folder (--owner-timeout)", err)

    def test_without_flock(self):
        for number in (37, 38):  # ENOLCK, ENOSYS
            env = {"LD_PRELOAD": LIBRARY, "FAULT_CALLS": "flock", "FAULT_CALL": "1", "FAULT_TIMES": str(10**6),
                   "FAULT_KIND": f"error {number}"}
            env["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"
            first = self.start_on([], env=env)
            self.wait_for_checkpoint(first)
            code, err = self.end(self.start_on([], env=env))
            self.assertEqual(code, USAGE, err)
            self.assertIn(f"out: is in use by another run (process {first.pid} on ", err)
            first.kill()
            first.wait()
            third = self.start_on([], env=env)  # need not wait, because it is on the host of the killed run
            while self.owner()["process"] != third.pid:
                self.assertIsNone(third.poll())
            third.kill()
            third.wait()
            shutil.rmtree(self.path("out"))


if __name__ == "__main__":
    main()
