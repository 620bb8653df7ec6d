"""Ranks without MPI: torchrun starts them on one host or on two hosts. tests/torchrun.py stands for torchrun. Two hosts are
two network namespaces with a cable between them. Each of them has its own processes too, so ranks of different hosts
cannot read each other's memory."""
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

from ranks_job import COMMUNICATION_FAILED, PHASES, RanksTest, Run, mpirun
from ranks_workshop_test import MULTI, FSDP, TINY, recipe
from tessera_cli import PROGRAM, RUN_LIMIT_S, main

TORCHRUN = mpirun.TORCHRUN[:-1]  # without --no-python


class OneHost(RanksTest):
    def torchrun(self, *words):
        run = Run([*TORCHRUN, *words], self.folder)
        self.addCleanup(run.destroy)
        return run.end()

    def test_the_workshops_lines(self):
        """The lines of the workshop, with the name of the program exchanged."""
        for name, words, ranks in [
            (f"{MULTI}2_gpus", ["--nproc_per_node=2", "--no_python"], 2),
            (f"{FSDP}multi_gpu/4_gpus", ["--standalone", "--nnodes=1", "--nproc_per_node=4", "--rdzv_id=456", "--no_python"], 4),
        ]:
            with self.subTest(experiment=name):
                train = ["train", recipe(name), *TINY, "--model", "config.json", "--output-dir"]
                code, err = self.torchrun(*words, PROGRAM, *train, f"torchrun-{ranks}")
                self.assertEqual(code, 0, err)
                self.succeeds(*train, f"nproc-{ranks}", "--nproc", str(ranks))
                self.assertEqual(self.json_of(f"torchrun-{ranks}", "summary.json")["world_size"], ranks)
                self.assert_same_results(f"nproc-{ranks}", f"torchrun-{ranks}")


class TwoHosts(RanksTest):
    NAMES = [f"tessera{os.getpid()}{letter}" for letter in "ab"]
    ADDRESSES = ["10.77.0.1", "10.77.0.2"]

    @classmethod
    def command(cls, *words):
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).returncode == 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("ip") or not shutil.which("unshare"):
            raise unittest.SkipTest("needs ip (iproute2) and unshare (util-linux)")
        if not all(cls.command("ip", "netns", "add", name) for name in cls.NAMES):
            cls.tearDownClass()
            raise unittest.SkipTest("this system permits no network namespaces")
        first, second = cls.NAMES
        works = cls.command("ip", "link", "add", "eth0", "netns", first, "type", "veth", "peer", "name", "eth0", "netns",
                            second)
        for name, address in zip(cls.NAMES, cls.ADDRESSES):
            works = works and cls.command("ip", "-n", name, "address", "add", address + "/24", "dev", "eth0")
            works = works and all(cls.command("ip", "-n", name, "link", "set", link, "up") for link in ("lo", "eth0"))
            works = works and cls.command("ip", "netns", "exec", name, *cls.processes(), "true")
        if not works:
            cls.tearDownClass()
            raise unittest.SkipTest("this system permits no virtual cable or no process namespaces")

    @classmethod
    def tearDownClass(cls):
        for name in cls.NAMES:
            cls.command("ip", "netns", "delete", name)
        super().tearDownClass()

    @staticmethod
    def processes():
        return ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

    def start_host(self, host, *words, per_host=2, master=None, **options):
        torchrun = [*TORCHRUN, "--nnodes", "2", "--node-rank", str(host), "--nproc-per-node", str(per_host), "--master-addr",
                    master or self.ADDRESSES[0], "--master-port", "29500", "--no-python", PROGRAM]
        run = Run(["ip", "netns", "exec", self.NAMES[host], *self.processes(), *torchrun, *words], self.folder, **options)
        self.addCleanup(run.destroy)
        return run

    def words_of(self, output, *words):
        return [word for word in self.words(output, *words, ranks=4) if word not in ["--nproc", "4"]]

    def test_the_same_results_as_on_one_host(self):
        """Rank 0 may call itself localhost, as some operators of Kubernetes set it."""
        for strategy, master in ("no_shard", None), ("full_shard", "localhost"), ("zero2", None):
            with self.subTest(strategy=strategy):
                words = ["--strategy", strategy, "--epochs", "20"]
                self.train_ranks(f"one-{strategy}", *words, ranks=4)
                hosts = [self.start_host(host, *self.words_of(f"two-{strategy}", *words), master=master if host == 0 else None)
                         for host in (0, 1)]
                for host in hosts:
                    code, err = host.end()
                    self.assertEqual(code, 0, err)
                self.assert_same_results(f"one-{strategy}", f"two-{strategy}")
                self.assertEqual(self.checkpoints(f"two-{strategy}"), self.checkpoints(f"one-{strategy}"))

    def test_nodes(self):
        words = ["nettest", "--device", "cpu", "--threads", "1", "--sizes", "8K,1M"]
        with open(self.path("table"), "wb") as table:
            hosts = [self.start_host(0, *words, stdout=table), self.start_host(1, *words)]
        for host in hosts:
            code, err = host.end()
            self.assertEqual(code, 0, err)
        out = self.read("table").decode()
        self.assertIn("4 ranks on 2 nodes, ", out)
        self.assertIn("TCP", out)
        self.assertRegex(out, r"node 0: \S+, ranks 0-1\n.*node 1: \S+, ranks 2-3\n")
        self.assertIn("# Out of bounds values : 0 OK\n", out)

    def test_a_rank_that_is_killed(self):
        """Every host reports the rank that was killed, once. The phase is known on all hosts."""
        for rank, killed_host in (3, 1), (0, 0), (1, 1):
            per_host = 2 if rank != 1 else 1  # rank 1 is then alone on its host, so only the other host reports it
            with self.subTest(rank=rank):
                output = f"out-{rank}"
                hosts = [self.start_host(host, *self.words_of(output), per_host=per_host) for host in (0, 1)]
                self.assertTrue(self.wait_until(hosts[0], lambda: self.num_lines(output) >= 15), hosts[0].text())
                self.assertTrue(hosts[killed_host].signal(rank, signal.SIGKILL))
                for number, host in enumerate(hosts):
                    code, err = host.end()
                    errors = re.findall("^error: .*", err, re.MULTILINE)
                    if per_host == 1 and number == killed_host:
                        self.assertEqual((code, errors), (128 + signal.SIGKILL, []), err)
                        continue
                    self.assertIn(code, [COMMUNICATION_FAILED, 128 + signal.SIGKILL], err)
                    self.assertEqual(len(errors), 1, err)
                    self.assertRegex(errors[0], rf"rank {rank} \((process \d+|10\.77\.0\.\d|127\.0\.0\.1)\) was killed, or ended "
                                     rf"without an error message\. Rank {rank} was in phase ({PHASES})\.")

    def test_an_error_is_reported_on_both_hosts(self):
        hosts = [self.start_host(host, *self.words_of("out"), *(["--lr", "0.02"] if host == 1 else [])) for host in (0, 1)]
        for host in hosts:
            code, err = host.end()
            self.assertEqual(code, 2, err)
            self.assertEqual(err.count("error: "), 1, err)
            self.assertIn("lr: is 0.01 on rank 0, but 0.02 on rank 2", err)

    def test_a_host_that_is_missing(self):
        host = self.start_host(0, *self.words_of("out", "--comm-timeout", "1"))
        code, err = host.end()
        self.assertEqual(code, COMMUNICATION_FAILED, err)
        self.assertIn("rank 0: not all ranks have arrived within 6 s. Ranks 2, 3 have not arrived.", err)

    def test_strangers_are_refused(self):
        """While the run waits for its second host, other programs connect to its port."""
        hosts = [self.start_host(0, *self.words_of("out", "--max-steps", "3"))]
        script = ("import socket, time\n"
                  "def connect():\n"
                  "    while True:\n"
                  "        try:\n"
                  f"            return socket.create_connection(('{self.ADDRESSES[0]}', 29501))\n"
                  "        except ConnectionRefusedError:\n"
                  "            time.sleep(0.01)\n"
                  "web = connect()\n"
                  "web.sendall(b'GET / HTTP/1.1\\r\\nHost: localhost\\r\\nAccept: text/html\\r\\n\\r\\n')\n"
                  "try:\n"
                  "    assert web.recv(1000) == b''\n"
                  "except ConnectionResetError:\n"  # the other side had not read everything
                  "    pass\n")
        subprocess.run(["ip", "netns", "exec", self.NAMES[1], sys.executable, "-c", script], check=True, timeout=RUN_LIMIT_S)
        hosts.append(self.start_host(1, *self.words_of("out", "--max-steps", "3")))
        codes = [host.end() for host in hosts]
        self.assertEqual([code for code, _ in codes], [0, 0], codes)
        self.assertIn("rank 0: refused a connection from 10.77.0.2: it sent something else than a greeting of Tessera\n",
                      codes[0][1])


if __name__ == "__main__":
    main()
