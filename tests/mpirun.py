"""The mpirun that the tests run. The variable TEST_MPIRUN names it. Without this variable, it is the first mpirun in
PATH. It must belong to the MPI library that the program uses. If no mpirun exists, torchrun.py takes its place, and tests
that need mpirun are skipped."""
import atexit
import os
import shutil
import subprocess
import sys
import tempfile

PATH = os.environ.get("TEST_MPIRUN", "mpirun")
IS_THERE = shutil.which(PATH) is not None
VERSION = subprocess.run([PATH, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         check=False).stdout.decode() if IS_THERE else ""
IS_OPEN_MPI = "Open MPI" in VERSION
MAJOR = int(VERSION.split("Open MPI) ")[1].split(".")[0]) if IS_OPEN_MPI else 0
# With these options, Open MPI's mpirun also runs as root, starts more ranks than the machine has cores, binds no rank
# to a core, and gives the ranks no standard input. MPICH needs no options.
OPTIONS = [] if not IS_OPEN_MPI else ["--allow-run-as-root", "--bind-to", "none", "--stdin", "none",
                                      *(["--map-by", ":OVERSUBSCRIBE"] if MAJOR >= 5 else ["--oversubscribe"])]
TORCHRUN = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torchrun.py"), "--no-python"]
MPIRUN = [PATH, *OPTIONS] if IS_THERE else TORCHRUN
RANK_VARIABLE = "RANK" if not IS_THERE else "OMPI_COMM_WORLD_RANK" if IS_OPEN_MPI else "PMI_RANK"


def own_folder():
    """A folder for the files of mpirun. Without one for each test program, two mpirun that start or end at the same time
    may fail, because one removes the folder that the other needs."""
    if not hasattr(own_folder, "path"):
        own_folder.path = tempfile.mkdtemp(prefix="mpi-")
        atexit.register(shutil.rmtree, own_folder.path, ignore_errors=True)
    return own_folder.path


def clean_environment():
    """The environment without the variables of launchers, of OpenMP and of Tessera. For Open MPI before version 5, it
    contains a variable that makes mpirun start ranks without ssh."""
    prefixes = ("TESSERA_", "OMPI_", "OMP_", "PMI", "PRTE_", "HYDRA_", "TORCHELASTIC_", "SLURM_", "MASTER_", "RANK",
                "WORLD_SIZE", "LOCAL_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    if IS_OPEN_MPI and MAJOR < 5:
        clean["OMPI_MCA_plm"] = "isolated"
    if IS_OPEN_MPI:
        clean["OMPI_MCA_orte_tmpdir_base"] = clean["PRTE_MCA_prte_tmpdir_base"] = own_folder()
    # The seconds from SIGTERM to SIGKILL for the other ranks when a rank dies. The default of 1 s is short on a busy
    # machine: the ranks report the death meanwhile.
    clean["OMPI_MCA_odls_base_sigkill_timeout"] = clean["PRTE_MCA_odls_base_sigkill_timeout"] = "2"
    return clean
