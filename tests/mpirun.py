"""The mpirun of the MPI that the program is built with: TEST_MPIRUN, or the first one in PATH."""
import os
import subprocess

PATH = os.environ.get("TEST_MPIRUN", "mpirun")
VERSION = subprocess.run([PATH, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
IS_OPEN_MPI = "Open MPI" in VERSION
MAJOR = int(VERSION.split("Open MPI) ")[1].split(".")[0]) if IS_OPEN_MPI else 0
# Allow root, and more ranks than cores.
OPTIONS = [] if not IS_OPEN_MPI else ["--allow-run-as-root", "--bind-to", "none", "--stdin", "none",
                                      *(["--map-by", ":OVERSUBSCRIBE"] if MAJOR >= 5 else ["--oversubscribe"])]
MPIRUN = [PATH, *OPTIONS]
RANK_VARIABLE = "OMPI_COMM_WORLD_RANK" if IS_OPEN_MPI else "PMI_RANK"


def killed(number, name):
    """A pattern for the launcher's report of a killed rank. With MPICH it knows the signal only from Linux 6.15 on. If a
    rank dies while MPICH starts, MPICH 5 may crash in the others, and the report may name one of them."""
    text = rf"was killed by signal {number} \({name}\)"
    crash = r"was killed by signal 11 \(Segmentation fault\)"
    return text if IS_OPEN_MPI else rf"(?:{text}|was killed, or ended without a message|{crash})"


def clean_environment():
    """The environment without variables of a running rank. With it, the mpirun of Open MPI 4 needs no ssh."""
    prefixes = ("TESSERA_", "OMPI_", "OMP_", "PMI", "PRTE_", "HYDRA_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    if IS_OPEN_MPI and MAJOR < 5:
        clean["OMPI_MCA_plm"] = "isolated"
    return clean
