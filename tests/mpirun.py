"""The mpirun for tests: the one of TEST_MPIRUN, or the first one in PATH. It must belong to the MPI of the program."""
import os
import subprocess

PATH = os.environ.get("TEST_MPIRUN", "mpirun")
VERSION = subprocess.run([PATH, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
IS_OPEN_MPI = "Open MPI" in VERSION
MAJOR = int(VERSION.split("Open MPI) ")[1].split(".")[0]) if IS_OPEN_MPI else 0
# These options allow root, and more ranks than cores.
OPTIONS = [] if not IS_OPEN_MPI else ["--allow-run-as-root", "--bind-to", "none", "--stdin", "none",
                                      *(["--map-by", ":OVERSUBSCRIBE"] if MAJOR >= 5 else ["--oversubscribe"])]
MPIRUN = [PATH, *OPTIONS]
RANK_VARIABLE = "OMPI_COMM_WORLD_RANK" if IS_OPEN_MPI else "PMI_RANK"


def killed(number, name):
    """Returns a pattern for the launcher's report of a killed rank.

    With MPICH, the launcher knows the signal only since Linux 6.15. If a rank dies while MPICH 5 starts, MPICH may
    crash in the other ranks, and the report may be about one of these.
    """
    text = rf"was killed by signal {number} \({name}\)"
    crash = r"was killed by signal 11 \(Segmentation fault\)"
    return text if IS_OPEN_MPI else rf"(?:{text}|was killed, or ended without a message|{crash})"


def clean_environment():
    """Returns the environment without the variables of a running rank. For Open MPI 4, adds a variable: mpirun then
    needs no ssh."""
    prefixes = ("TESSERA_", "OMPI_", "OMP_", "PMI", "PRTE_", "HYDRA_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    if IS_OPEN_MPI and MAJOR < 5:
        clean["OMPI_MCA_plm"] = "isolated"
    return clean
