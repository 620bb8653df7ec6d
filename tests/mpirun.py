"""The mpirun that the tests run. The variable TEST_MPIRUN names it. Without this variable, it is the first mpirun in
PATH. It must belong to the MPI library that the program uses."""
import os
import subprocess

PATH = os.environ.get("TEST_MPIRUN", "mpirun")
VERSION = subprocess.run([PATH, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
IS_OPEN_MPI = "Open MPI" in VERSION
MAJOR = int(VERSION.split("Open MPI) ")[1].split(".")[0]) if IS_OPEN_MPI else 0
# With these options, Open MPI's mpirun also runs as root, starts more ranks than the machine has cores, binds no rank
# to a core, and gives the ranks no standard input. MPICH needs no options.
OPTIONS = [] if not IS_OPEN_MPI else ["--allow-run-as-root", "--bind-to", "none", "--stdin", "none",
                                      *(["--map-by", ":OVERSUBSCRIBE"] if MAJOR >= 5 else ["--oversubscribe"])]
MPIRUN = [PATH, *OPTIONS]
RANK_VARIABLE = "OMPI_COMM_WORLD_RANK" if IS_OPEN_MPI else "PMI_RANK"


def killed(number, name):
    """A pattern for the launcher's report that a signal killed a rank. With MPICH, the launcher knows the signal only
    on Linux 6.15 or newer, so the pattern also accepts a report without the signal. If a rank dies while MPICH starts,
    MPICH 5 may crash in the other ranks. The launcher may then report the crash of one of these ranks."""
    text = rf"was killed by signal {number} \({name}\)"
    crash = r"was killed by signal 11 \(Segmentation fault\)"
    return text if IS_OPEN_MPI else rf"(?:{text}|was killed, or ended without a message|{crash})"


def clean_environment():
    """The environment without the variables of launchers, of OpenMP and of Tessera. For Open MPI before version 5, it
    contains a variable that makes mpirun start ranks without ssh."""
    prefixes = ("TESSERA_", "OMPI_", "OMP_", "PMI", "PRTE_", "HYDRA_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    if IS_OPEN_MPI and MAJOR < 5:
        clean["OMPI_MCA_plm"] = "isolated"
    return clean
