"""The mpirun of the MPI that the program is built with: TEST_MPIRUN, or the first mpirun in PATH."""
import os
import subprocess

PATH = os.environ.get("TEST_MPIRUN", "mpirun")
VERSION = subprocess.run([PATH, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False).stdout.decode()
IS_OPEN_MPI = "Open MPI" in VERSION
MAJOR = int(VERSION.split("Open MPI) ")[1].split(".")[0]) if IS_OPEN_MPI else 0
# Allows root, and more ranks than cores.
OPTIONS = [] if not IS_OPEN_MPI else ["--allow-run-as-root", "--bind-to", "none", "--stdin", "none",
                                      *(["--map-by", ":OVERSUBSCRIBE"] if MAJOR >= 5 else ["--oversubscribe"])]
MPIRUN = [PATH, *OPTIONS]
RANK_VARIABLE = "OMPI_COMM_WORLD_RANK" if IS_OPEN_MPI else "PMI_RANK"


def killed(number, name):
    """The launcher's message about a killed rank. With MPICH, it knows the signal only on Linux 6.15 or later."""
    text = rf"was killed by signal {number} \({name}\)"
    return text if IS_OPEN_MPI else rf"(?:{text}|was killed, or has ended without a message)"


def clean_environment():
    """The environment of a shell outside any rank. It also lets Open MPI 4's mpirun start without ssh."""
    prefixes = ("TESSERA_", "OMPI_", "OMP_", "PMI", "PRTE_", "HYDRA_")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    if IS_OPEN_MPI and MAJOR < 5:
        clean["OMPI_MCA_plm"] = "isolated"
    return clean
