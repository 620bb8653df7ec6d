"""`--memory-log` with several ranks."""
import json
import os

from tessera_cli import main
from tiny_job import GPT, TinyJobTest


class Ranks(TinyJobTest):
    def test_one_log_of_the_node_and_a_ledger_for_each_rank(self):
        self.train("out", "--max-steps", "3", "--nproc", "2", "--strategy", "full_shard", "--memory-log", "logs:0.01",
                   job=GPT)
        files = [name for name in sorted(os.listdir(self.path("logs"))) if not name.startswith("gpu_memory_log")]
        self.assertEqual(files, ["cpu_memory_log.txt", "ledger-rank-0.jsonl", "ledger-rank-1.jsonl"])
        rows = [line.split() for line in self.read("logs", "cpu_memory_log.txt").decode().splitlines()[1:]]
        real_mb = max(float(row[2]) for row in rows)
        ledgers = [self.read("logs", f"ledger-rank-{rank}.jsonl").splitlines() for rank in range(2)]
        ranks = [max(json.loads(line)["resident_bytes"] for line in lines) for lines in ledgers]
        # The log adds up the memory of the launcher, mpirun and both ranks. Its peak is therefore clearly higher than
        # the peak of one rank.
        self.assertGreater(real_mb * 2 ** 20, 1.2 * max(ranks))
        summary = self.json_of("out", "summary.json")
        self.assertEqual(summary["memory_log"]["cpu"]["peak_mb"], real_mb)
        self.assertGreater(summary["callbacks"]["avg_mem_alloc_MB"], 0)
        self.assertIn("CPU Memory Usage\n   Peak = ", self.succeeds("memory", "logs", "--cpu-only"))


if __name__ == "__main__":
    main()
