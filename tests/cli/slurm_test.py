"""Tests the verb `slurm`: the files that it writes, and what these files do when they run. Small scripts replace srun,
sbatch, scontrol and module."""
import os
import shutil
import stat
import subprocess
import unittest

from tessera_cli import PROGRAM, RUN_LIMIT_S, main
from tiny_job import JOB, TinyJobTest

RUN = ["train", *JOB, "--output-dir", "out"]
SRUN = """#!/bin/bash
# Runs the command as one rank if RUN_IT is set. Otherwise ends with CODE.
printf '%s\\n' "$@" > srun.words
while [[ $1 == --* ]]; do shift; done
if [ -n "${RUN_IT:-}" ]; then exec "$@"; fi
exit "$CODE"
"""
# Prints a new job number for each call: 101, 102, … Refuses the job file that the variable REFUSED names.
SBATCH = """#!/bin/bash
echo "sbatch $*" >> calls
[ "${!#}" != "${REFUSED:-}" ] || exit 1
echo "$((100 + $(grep -c ^sbatch calls)));cluster"
"""
# Writes the call to the file `calls`, and ends with the exit code in the variable whose name replaces %s (default 0).
LISTED = "#!/bin/bash\necho \"$(basename \"$0\") $*\" >> calls\nexit \"${%s:-0}\"\n"


class SlurmTest(TinyJobTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        for name, text in [("srun", SRUN), ("sbatch", SBATCH), ("scontrol", LISTED % "SCONTROL_CODE"), ("module", LISTED % "MODULE_CODE")]:
            os.chmod(self.write(f"bin/{name}", text), stat.S_IRWXU)

    def job(self, *words, run=tuple(RUN), **options):
        """Returns the lines of a job file, without the comments at the ends of lines."""
        out = self.succeeds("slurm", "--job-file", "-", *words, *run, **options)
        return [line.split("  #")[0].rstrip() for line in out.splitlines()]

    def refuses(self, message, *words, run=tuple(RUN), **options):
        self.fails(2, message, "slurm", *words, *run, **options)
        self.assertFalse(os.path.exists(self.path("out")))

    def submit(self, **env):
        """Runs out/job.sbatch as Slurm does. Returns the exit code, the output and the calls of scontrol and module."""
        if os.path.exists(self.path("calls")):
            os.unlink(self.path("calls"))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "SLURM_"))}
        done = subprocess.run(["bash", "out/job.sbatch"], cwd=self.folder, timeout=RUN_LIMIT_S, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**clean, "PATH": self.path("bin") + ":" + os.environ["PATH"], "SLURM_JOB_ID": "7", **env})
        calls = self.read("calls").decode().splitlines() if os.path.exists(self.path("calls")) else []
        return done.returncode, done.stdout, calls


class Files(SlurmTest):
    def test_default(self):
        out = self.succeeds("slurm", *RUN)
        self.assertEqual(out, "out/job.sbatch: submit it with: sbatch out/job.sbatch\n")
        text = self.read("out", "job.sbatch").decode()
        folder = os.path.realpath(self.folder)
        for line in ["--job-name=out", f"--chdir={folder}", "--nodes=1", "--ntasks-per-node=1", "--signal=USR1@300",
                     "--requeue", "--open-mode=append", f"--output={folder}/out/slurm-%j.log"]:
            self.assertRegex(text, rf"(?m)^#SBATCH {line}( |$)")
        self.assertNotRegex(text, "gpus|partition|account|constraint|mem=|time=|module|apptainer")
        self.assertLess(len(text.splitlines()), 50)

    def test_every_option(self):
        text = self.job("--nodes", "2", "--gpus-per-node", "4", "--cpus-per-task", "8", "--time", "1-12", "--partition", "a100",
                        "--account", "k1", "--constraint", "a100&nvlink", "--mem", "64G", "--job-name", "2ZO-8G2N",
                        "--module", "cuda/12.4,openmpi/4.1", "--container", "/images/tessera one.sif", "--signal-before",
                        "600", "--max-requeues", "3")
        self.assertEqual(text[0], "#!/bin/bash -l")
        for option in ["nodes=2", "ntasks-per-node=4", "gpus-per-node=4", "cpus-per-task=8", "time=1-12:00:00",
                       "partition=a100", "account=k1", "constraint=a100&nvlink", "mem=64G", "job-name=2ZO-8G2N",
                       "signal=USR1@600"]:
            self.assertIn(f"#SBATCH --{option}", text)
        self.assertIn("module load cuda/12.4 openmpi/4.1 || exit 1", text)
        self.assertLess(text.index("module load cuda/12.4 openmpi/4.1 || exit 1"), text.index("set -euo pipefail"))
        start = next(i for i, line in enumerate(text) if line.startswith("srun "))
        self.assertRegex(text[start], r"^srun --mpi=\w+ --kill-on-bad-exit=0 --cpus-per-task=8 \\$")
        self.assertEqual(text[start + 1], "  apptainer exec --nv --bind \"$PWD\" '/images/tessera one.sif' \\")
        self.assertEqual(text[start + 2], "  tessera train \\")
        self.assertTrue(any('"${SLURM_RESTART_COUNT:-0}" -lt 3 ' in line for line in text))
        self.assertIn("#SBATCH --ntasks-per-node=2", self.job("--gpus-per-node", "4", "--ntasks-per-node", "2"))

    def test_nothing_to_requeue(self):
        text = self.job("--no-requeue", "--signal-before", "0")
        self.assertIn("#SBATCH --no-requeue", text)
        self.assertNotIn("scontrol", "\n".join(text))
        self.assertNotIn("--signal", "\n".join(line for line in text if line.startswith("#SBATCH")))

    def test_settings_come_from_the_recipe_and_the_environment(self):
        self.write("run.toml", 'model = "config.json"\ninit = "random"\ntokenizer = "tok"\ndataset = "train.jsonl"\n'
                               'output_dir = "runs/a"\n[slurm]\nnodes = 3\ntime = "90"\n')
        text = self.job("--nodes", "2", run=["run.toml", "--lr", "1e-2"],
                        env={"TESSERA_PARTITION": "gpu", "TESSERA_EPOCHS": "2", "TESSERA_SHUFFLE": "false"})
        for option in ["nodes=2", "time=01:30:00", "partition=gpu", "job-name=a"]:
            self.assertIn(f"#SBATCH --{option}", text)
        joined = "".join(text).replace("\\", "")
        for word in [" train run.toml ", " --lr 1e-2 ", " --epochs 2.0 ", " --no-shuffle "]:
            self.assertIn(word, joined)

    def test_an_existing_file_stays(self):
        self.succeeds("slurm", "--job-file", "my job.sbatch", *RUN)
        before = self.read("my job.sbatch")
        self.fails(2, "my job.sbatch: exists already. Add --replace before the command, or give another --job-file", "slurm",
                   "--job-file", "my job.sbatch", "--nodes", "2", *RUN)
        self.assertEqual(self.read("my job.sbatch"), before)
        self.succeeds("slurm", "--job-file", "my job.sbatch", "--nodes", "2", "--replace", *RUN)
        self.assertIn(b"--nodes=2\n", self.read("my job.sbatch"))

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is missing")
    def test_shellcheck(self):
        for number, words in enumerate([[], ["--no-requeue"], ["--module", "a,b", "--container", "it's.sif", "--time", "60",
                                                               "--gpus-per-node", "2", "--cpus-per-task", "4"]]):
            file = f"{number}.sbatch"
            self.succeeds("slurm", "--job-file", file, *words, *RUN)
            done = subprocess.run(["shellcheck", file], cwd=self.folder, check=False, stdout=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


class Jobs(SlurmTest):
    def test_only_75_queues_again(self):
        self.succeeds("slurm", "--max-requeues", "3", *RUN)
        for code in 0, 1, 2, 3, 4, 5, 75, 76, 137, 143:
            done, _, calls = self.submit(CODE=str(code))
            self.assertEqual((done, calls), (code, ["scontrol requeue 7"] if code == 75 else []))
        self.assertEqual(self.submit(CODE="75", SLURM_RESTART_COUNT="2")[2], ["scontrol requeue 7"])
        done, out, calls = self.submit(CODE="75", SLURM_RESTART_COUNT="3")
        self.assertEqual((done, calls), (75, []))
        self.assertIn("job 7: already queued again 3 times, the maximum; submit the job file again to continue", out)
        done, out, _ = self.submit(CODE="75", SCONTROL_CODE="1")
        self.assertEqual(done, 75)
        self.assertIn("job 7: scontrol failed; submit the job file again", out)
        self.succeeds("slurm", "--no-requeue", "--replace", *RUN)
        self.assertEqual(self.submit(CODE="75")[::2], (75, []))

    def test_a_job_trains_in_its_folder(self):
        """A job gives the same results as the same training without Slurm. The program gets exactly the words of the
        command, even words with blanks and quotes."""
        name = "it's $HOME; a \"name\""
        os.rename(self.path("train.jsonl"), self.path(name))
        run = [word if word != "train.jsonl" else name for word in JOB]
        self.train("plain", "--max-steps", "3", job=run)
        self.succeeds("slurm", "train", *run, "--max-steps", "3", "--output-dir", "out")
        code, out, calls = self.submit(RUN_IT="1")
        self.assertEqual((code, calls), (0, []), out)
        self.assert_same_results("out", "plain")
        self.assertIn("job.sbatch", os.listdir(self.path("out")))
        self.assertRegex(self.read("srun.words").decode(), r"^--mpi=\w+\n--kill-on-bad-exit=0\n" + PROGRAM + "\ntrain\n")

    def test_modules(self):
        self.succeeds("slurm", "--module", "cuda/12.4,openmpi", *RUN)
        self.assertEqual(self.submit(CODE="0")[::2], (0, ["module load cuda/12.4 openmpi"]))
        code, _, calls = self.submit(CODE="0", MODULE_CODE="1")
        self.assertEqual((code, calls), (1, ["module load cuda/12.4 openmpi"]))
        self.assertNotIn("srun", calls)


class Sweeps(SlurmTest):
    """`slurm sweep` makes a job for each run that is not done."""

    def setUp(self):
        super().setUp()
        self.write("job.toml", 'model = "config.json"\ninit = "random"\ntokenizer = "tok"\ndataset = "train.jsonl"\n'
                               'threads = 1\nmax_steps = 2\n[slurm]\ntime = "20"\n')
        self.write("sweep.toml", 'base = "job.toml"\noutput_dir = "runs/s/{name}"\nname = "n{nproc}"\n[matrix]\nnproc = [1, 2, 4, 8]\n')
        self.env = {"PATH": self.path("bin") + ":" + os.environ["PATH"]}

    def options(self, *folder):
        text = self.read(*folder, "job.sbatch").decode()
        return dict(line[len("#SBATCH --"):].split("  ")[0].strip().split("=", 1) for line in text.splitlines()
                    if line.startswith("#SBATCH") and "=" in line.split("#")[1])

    def calls(self):
        return self.read("calls").decode().splitlines()

    def test_resources_follow_the_ranks_of_each_run(self):
        out = self.succeeds("slurm", "--gpus-per-node", "4", "--account", "k1", "sweep", "sweep.toml", "--lr", "0.5")
        self.assertEqual(out, "runs/s/submit.sh: submit 4 jobs with: bash runs/s/submit.sh\n")
        for ranks, nodes in (1, 1), (2, 1), (4, 1), (8, 2):
            options = self.options("runs", "s", f"n{ranks}")
            got = [options[key] for key in ["nodes", "ntasks-per-node", "gpus-per-node", "job-name", "account", "time"]]
            self.assertEqual(got, [str(nodes), str(ranks // nodes), str(ranks // nodes), f"n{ranks}", "k1", "00:20:00"])
            text = self.read("runs", "s", f"n{ranks}", "job.sbatch").decode()
            self.assertIn(f"  --nproc {ranks} ", text)
            self.assertIn("  --lr 0.5 ", text)

    def test_one_job_after_the_other(self):
        self.succeeds("slurm", "--submit", "sweep", "sweep.toml", env=self.env)
        files = [f"runs/s/n{ranks}/job.sbatch" for ranks in (1, 2, 4, 8)]
        self.assertEqual(self.calls(), ["sbatch --parsable " + files[0]] +
                         [f"sbatch --parsable --dependency=afterany:{101 + i} {file}" for i, file in enumerate(files[1:])])

    def test_several_jobs_at_once(self):
        self.succeeds("slurm", "--submit", "--max-jobs", "3", "sweep", "sweep.toml", env=self.env)
        waits = [call.split()[2] for call in self.calls()]
        self.assertEqual(waits, [f"runs/s/n{ranks}/job.sbatch" for ranks in (1, 2, 4)] + ["--dependency=afterany:101"])
        for most in "0", "4":
            os.unlink(self.path("calls"))
            self.succeeds("slurm", "--submit", "--replace", "--max-jobs", most, "sweep", "sweep.toml", env=self.env)
            self.assertNotIn("dependency", "".join(self.calls()))

    def test_done_runs_get_no_job(self):
        self.succeeds("train", "job.toml", "--nproc", "1", "--output-dir", "runs/s/n1")
        code, out, err = self.run_tessera("slurm", "--job-file", "all.sh", "sweep", "sweep.toml")
        self.assertEqual((code, out), (0, "all.sh: submit 3 jobs with: bash all.sh\n"))
        self.assertEqual(err, "n1: no job, because the run is done\n")
        self.assertNotIn("n1/", self.read("all.sh").decode())
        self.write("one.toml", 'base = "job.toml"\nname = "n1"\noutput_dir = "runs/s"\n[settings]\nnproc = 1\n')
        self.assertEqual(self.succeeds("slurm", "sweep", "one.toml"), "No run of the sweep needs a job.\n")

    def test_a_finished_job_is_not_submitted_again(self):
        self.succeeds("slurm", "--submit", "sweep", "sweep.toml", env=self.env)
        os.unlink(self.path("calls"))
        self.succeeds("train", "job.toml", "--nproc", "1", "--output-dir", "runs/s/n1")
        before = self.read("runs", "s", "n1", "job.sbatch")
        self.succeeds("slurm", "--mem", "8G", "--submit", "--replace", "sweep", "sweep.toml", env=self.env)
        self.assertEqual(self.calls(), ["sbatch --parsable runs/s/n2/job.sbatch"] +
                         [f"sbatch --parsable --dependency=afterany:{101 + i} runs/s/n{ranks}/job.sbatch"
                          for i, ranks in enumerate((4, 8))])
        self.assertEqual(self.read("runs", "s", "n1", "job.sbatch"), before)
        self.assertEqual(self.options("runs", "s", "n2")["mem"], "8G")

    def test_sbatch_refuses_a_job(self):
        code, out, err = self.run_tessera("slurm", "--submit", "sweep", "sweep.toml",
                                          env={**self.env, "REFUSED": "runs/s/n4/job.sbatch"})
        self.assertEqual((code, out.splitlines()), (1, ["101 runs/s/n1/job.sbatch", "102 runs/s/n2/job.sbatch"]))
        self.assertIn("error: sbatch refused runs/s/n4/job.sbatch. Jobs that are already queued: 2 (from the "
                      "beginning of the list). Before you run this script again, delete them from the list\n", err)
        self.assertIn("error: bash runs/s/submit.sh: ended with exit code 1. In the list in the script, "
                      "delete the jobs that are already queued. Then run the script again\n", err)

    def test_one_run_is_submitted(self):
        self.succeeds("slurm", "--submit", *RUN, env=self.env)
        self.assertEqual(self.calls(), ["sbatch out/job.sbatch"])

    def test_nothing_is_written_if_a_run_or_a_file_is_wrong(self):
        os.makedirs(self.path("runs", "s", "n4"))
        self.write("runs/s/n4/job.sbatch", "mine")
        self.fails(2, "runs/s/n4/job.sbatch: exists already. Add --replace", "slurm", "sweep", "sweep.toml")
        self.fails(2, "--submit: sbatch is not in PATH", "slurm", "--submit", "sweep", "sweep.toml", env={"PATH": "/nowhere"})
        self.fails(2, "sweep: needs a sweep file", "slurm", "sweep")
        self.fails(2, "--dry-run: belongs to tessera sweep, not to tessera slurm", "slurm", "sweep", "sweep.toml",
                   "--dry-run")
        self.fails(2, "--job-file: must not be -, because a sweep has several job files", "slurm", "--job-file", "-",
                   "sweep", "sweep.toml")
        self.fails(2, "1 contradicts the 2 ranks of the job", "slurm", "--nodes", "2", "sweep", "sweep.toml")
        self.fails(2, "--strategi: unknown flag", "slurm", "sweep", "sweep.toml", "--strategi", "x")
        for script in "runs/s/n8/job.sbatch", "./runs/s/n1/../n8/job.sbatch":
            self.fails(2, f"{script}: is the job file of two jobs, or of a job and of the script that submits the jobs. Give another --job-file",
                       "slurm", "--replace", "--job-file", script, "sweep", "sweep.toml")
        self.fails(2, "all?.sh: contains a control character. Give a --job-file without", "slurm", "--replace", "--job-file",
                   "all\n.sh", "sweep", "sweep.toml")
        self.assertEqual(os.listdir(self.path("runs", "s")), ["n4"])

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is missing")
    def test_shellcheck(self):
        for most in "0", "2":
            self.succeeds("slurm", "--replace", "--max-jobs", most, "sweep", "sweep.toml")
            done = subprocess.run(["shellcheck", "runs/s/submit.sh"], cwd=self.folder, check=False, stdout=subprocess.PIPE, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""))


class Refusals(SlurmTest):
    def test_command(self):
        self.fails(2, "slurm: needs the command of the job. Example: tessera slurm ", "slurm", "--nodes", "2")
        self.refuses('trian: unknown verb. Did you mean "train"?', run=["trian"])
        self.refuses("eval: slurm writes job files only for training runs. Write: tessera slurm ... train", run=["eval"])
        self.refuses("--lr: is not a setting of slurm. It belongs to train", "--lr", "1")
        self.refuses("--nodes: is a setting of the job. Write it before the command of the run", run=[*RUN, "--nodes", "2"])
        self.refuses("--output-dir: is required by train", run=["train", *JOB])
        self.refuses("none.toml: ", run=["none.toml"])
        self.refuses("--shard-group-size: ", "--nodes", "2", run=[*RUN, "--strategy", "hybrid_shard", "--shard-group-size",
                                                                 "3"])

    def test_runs_that_would_fail(self):
        self.refuses("--nproc: 4 contradicts the 2 ranks of the job", "--nodes", "2", run=[*RUN, "--nproc", "4"])
        self.refuses("--max-restarts: needs --nproc, but Slurm starts the ranks", run=[*RUN, "--max-restarts", "1"])
        self.refuses('--resume: "none" would begin the run again each time', run=[*RUN, "--resume", "none"])
        self.job("--no-requeue", run=[*RUN, "--resume", "none"])

    def test_values(self):
        for time in "4:", "-1", "1-", "a", "1:2:3:4", "0", "1-2-3", "2.5h":
            self.refuses(f'--time: is not a time limit of sbatch: "{time}". Write minutes (90)', f"--time={time}")
        self.refuses("--signal-before: 300 s is not less than the time limit of the job, 300 s", "--time", "5")
        self.refuses('--mem: must be a whole number, optionally followed by K, M, G or T, got "64 GB"', "--mem", "64 GB")
        self.refuses('--partition: must have no blanks, quotes, $, # or \\, got "a b"', "--partition", "a b")
        self.refuses("--nodes: must be at least 1, got 0", "--nodes", "0")

    def test_control_characters(self):
        for name, shown in ("a\nb.sbatch", "a?b.sbatch"), ("\x1b[2J", "?[2J"), ("a\x7f", "a?"), ("a\t", "a?"):
            self.refuses(f"{shown}: contains a control character. Give a --job-file without", "--job-file", name)
        self.assertNotIn("a\nb.sbatch", os.listdir(self.folder))
        self.refuses("sbatch cannot read this path, because it has a quote, a backslash or a control character",
                     run=["train", *JOB, "--output-dir", "out\n"])
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("out")], [])

    def test_secrets(self):
        key = "0123456789abcdef" * 2
        for words, name in [([*RUN, "--tokenizer", f"a/{key}"], "WANDB_API_KEY"), (["HF_TOKEN=x", *RUN], "HF_TOKEN"),
                            ([*RUN, "--tokenizer", "hf_" + "Ab1" * 9], "HF_TOKEN")]:
            code, out, err = self.run_tessera("slurm", "--job-file", "-", *words, env={"WANDB_API_KEY": key})
            self.assertEqual((code, out), (2, ""))
            self.assertIn(f"{name}: a job file must not contain a secret, but an argument contains one", err)
            self.assertNotIn(key, err)
        self.assertNotIn(key, "\n".join(self.job(env={"WANDB_API_KEY": key})))


if __name__ == "__main__":
    main()
