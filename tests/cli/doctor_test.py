"""The verb `doctor`."""
import json
import os
import shutil

from tessera_cli import CliTest, main


class Doctor(CliTest):
    def test_text(self):
        out = self.succeeds("doctor")
        for section in ["build", "cpu", "memory", "disk", "libraries", "mpi", "cuda", "environment"]:
            self.assertIn(f"{section}\n", out)

    def test_json(self):
        report = json.loads(self.succeeds("doctor", "--json", "--output-dir", "not/yet/there",
                                          env={"OMP_NUM_THREADS": "3", "HF_TOKEN": "secret", "SLURM_JWT": "secret"}))
        self.assertRegex(report["build"]["version"], r"^tessera \d")
        self.assertEqual(report["cpu"]["cores_allowed"], len(os.sched_getaffinity(0)))
        self.assertGreater(report["memory"]["total_bytes"], report["memory"]["available_bytes"])
        self.assertEqual(report["disk"]["folder"], os.path.join(os.path.realpath(self.folder), "not/yet/there"))
        self.assertGreater(report["disk"]["free_bytes"], 0)
        self.assertTrue(report["disk"]["writable"])
        self.assertTrue(report["libraries"]["blas"]["name"])
        self.assertRegex(report["libraries"]["oniguruma"], r"^\d+\.\d+")
        self.assertEqual(report["mpi"]["mpirun"], shutil.which("mpirun") or "not found")
        self.assertIsInstance(report["cuda"]["gpus"], list)
        self.assertEqual(report["environment"]["OMP_NUM_THREADS"], "3")
        self.assertNotIn("secret", json.dumps(report))

    def test_allowed_cores_are_the_cores_of_the_process(self):
        core = min(os.sched_getaffinity(0))
        code, out, err = self.run_tessera("doctor", "--json", preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(json.loads(out)["cpu"]["cores_allowed"], 1)

    def test_what_the_program_reports_about_cuda(self):
        """For each CUDA library, doctor reports a version, or a text that says what is missing."""
        report = json.loads(self.succeeds("doctor", "--json", env={"CUDA_VISIBLE_DEVICES": ""}))
        cuda, built_in = report["cuda"], "cuda" in report["build"]["back_ends"].split()
        self.assertEqual(cuda["built_in"], built_in)
        self.assertTrue(cuda["problem"])  # no GPU is visible
        absent = ".*(not found|cannot be opened).*"
        for library in ["nccl", "cublaslt"]:
            self.assertRegex(cuda[library], rf"^(\d+\.\d+\.\d+|not in this build|{absent})$")
        if not built_in:
            self.assertEqual((cuda["nccl"], cuda["cublaslt"]), ("not in this build",) * 2)
            return
        self.assertRegex(cuda["toolkit"], r"^\d+\.\d+$")
        self.assertRegex(cuda["architectures"], r"^\S+( \S+)*$")
        self.assertNotEqual(cuda["cublaslt"], "not in this build")

    def test_driver_and_its_library(self):
        """Runs doctor with three stand-ins for NVML, the driver's management library: one that works, an old
        one that cannot report versions, and one that finds no driver."""
        stubs = os.environ["STUBS"]
        for variant, driver, nvml in [("nvml", "580.1.2", r"^13\.580\.1\.2$"),
                                      ("nvml_old", "not found", "unknown version"),
                                      ("nvml_no_driver", "not found", "cannot start: Driver Not Loaded")]:
            env = {"LD_LIBRARY_PATH": os.path.join(stubs, variant)}
            cuda = json.loads(self.succeeds("doctor", "--json", env=env))["cuda"]
            self.assertEqual(cuda["driver"], driver)
            self.assertRegex(cuda["nvml"], nvml)

    def test_unknown_flags(self):
        self.fails(2, '--jsn: unknown flag. Did you mean "--json"?', "doctor", "--jsn")


if __name__ == "__main__":
    main()
