"""A Slurm cluster of two hosts on one machine. It needs root. Each host has its own namespaces (network, host name,
processes, mounts, shared memory). A veth pair connects each host with a bridge in a third group of namespaces, which is
named "switch". stop() ends all processes and namespaces."""
import os
import re
import shutil
import signal
import subprocess
import time

NEEDED = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm", "srun": "slurm-wlm",
          "scontrol": "slurm-wlm", "ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}  # Debian's packages
HOSTS = {"hostA": "10.77.0.1", "hostB": "10.77.0.2"}
CONFIGURATION = """
ClusterName=tessera
SlurmctldHost=hostA({address})
SlurmctldPort=26817
SlurmdPort=26818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdTimeout=15
SlurmdParameters=config_overrides
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
StateSaveLocation={folder}/state
TmpFS={folder}/tmp-%n
NodeName=hostA NodeAddr=10.77.0.1 CPUs=4 RealMemory=4000
NodeName=hostB NodeAddr=10.77.0.2 CPUs=4 RealMemory=4000
PartitionName=debug Nodes=ALL Default=YES State=UP
"""


def missing():
    """A list of the things that the cluster needs and this machine lacks: root rights and Debian packages."""
    lacks = []
    if os.geteuid() != 0:
        lacks.append("root rights (for namespaces)")
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    packages = {package for program, package in NEEDED.items() if not shutil.which(program, path=path)}
    # Slurm's plugin for PMIx opens libpmix.so, which only the developer package contains.
    if not any(os.path.exists(os.path.join(folder, "libpmix.so"))
               for folder in ["/usr/lib64", "/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]):
        packages.add("libpmix-dev")
    return lacks + [f"the package {package}" for package in sorted(packages)]


def wait_for(what, condition, limit_s):
    """Calls `condition` until its value is true, and returns this value. Fails after `limit_s` seconds."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.2)
    raise AssertionError(f"waited {limit_s} s for {what}")


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        self.processes = []  # the processes that _spawn() started
        self.inits = {}      # host → ID of the first process in its namespaces
        self.first = {}      # host → the `unshare` process that made its namespaces

    def start(self):
        os.makedirs(os.path.join(self.folder, "state"))
        self._write("slurm.conf", CONFIGURATION.format(folder=self.folder, address=HOSTS["hostA"]))
        self._write("hosts", "127.0.0.1 localhost\n" + "".join(f"{ip} {name}\n" for name, ip in HOSTS.items()))
        with open(os.path.join(self.folder, "munge.key"), "wb") as file:
            file.write(os.urandom(1024))
        os.chmod(os.path.join(self.folder, "munge.key"), 0o600)
        in_folder = lambda option, name: f"--{option}={self.folder}/{name}"  # noqa: E731
        self._spawn(["munged", "--force", "--foreground", in_folder("socket", "munge.socket"),
                     in_folder("key-file", "munge.key"), in_folder("pid-file", "munge.pid"),
                     in_folder("log-file", "munge.log"), in_folder("seed-file", "munge.seed")])
        self._start_namespaces("switch", "ip link add bridge type bridge && ip link set bridge up")
        for host in HOSTS:
            self._start_host(host)
        self._spawn(["slurmctld", "-D", "-i"], host="hostA")
        for host in HOSTS:
            self.start_slurmd(host)
        wait_for("two idle nodes", lambda: self._idle_nodes() == 2, 60)

    def stop(self):
        for host in list(self.first):
            self.lose(host)
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
                process.wait()

    def lose(self, host):
        """Stops a host immediately: kills all its processes. Its address no longer answers."""
        process = self.first.pop(host)
        os.kill(self.inits.pop(host), signal.SIGKILL)
        process.wait()
        process.stdout.close()

    def bring_back(self, host):
        """Starts a lost host again."""
        self._start_host(host)
        self.start_slurmd(host)

    def start_slurmd(self, host):
        self._spawn(["slurmd", "-D", "-N", host], host=host)

    def run(self, *words, host="hostA", env=None, check=True):
        """Runs a command on a host. Returns its standard output."""
        done = subprocess.run(self._on(host, words), env=self._environment(env), check=False, timeout=120,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if check and done.returncode != 0:
            raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def submit(self, job_file, *options, env=None):
        """Submits a job file. sbatch does not run in the folder of the file, so the file must set the folder of the
        job. Returns the number of the job."""
        return self.run("sbatch", "--parsable", *options, job_file, env=env).strip()

    def job(self, number):
        """The fields of `scontrol show job`: JobState, Restarts, ExitCode, …"""
        return dict(re.findall(r"(\S+?)=(\S*)", self.run("scontrol", "--oneliner", "show", "job", number)))

    def wait_for_state(self, number, states, limit_s):
        """Waits until the job is in one of `states`, and returns its fields. A state that lasts less than about
        0.2 s, the time between two checks, may be missed."""
        def reached():
            fields = self.job(number)
            return fields if fields["JobState"] in states else None
        return wait_for(f"job {number} to be {' or '.join(states)}", reached, limit_s)

    def start_now(self, number):
        """Makes a requeued job start immediately. Slurm would let it wait about two minutes."""
        self.run("scontrol", "update", f"JobId={number}", "StartTime=now")

    def _write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def _environment(self, env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERA_", "SLURM_", "OMPI_", "PMIX_"))}
        return {**clean, "SLURM_CONF": os.path.join(self.folder, "slurm.conf"),
                "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", **(env or {})}

    def _on(self, host, words):
        return ["nsenter", "-t", str(self.inits[host]), "-a", *words] if host else list(words)

    def _spawn(self, words, host=None):
        with open(os.path.join(self.folder, f"{words[0]}-{host or 'machine'}.out"), "ab") as log:
            self.processes.append(subprocess.Popen(self._on(host, words), env=self._environment(), stdin=subprocess.DEVNULL,
                                                   stdout=log, stderr=log, cwd="/"))

    def _start_namespaces(self, host, first_command):
        init = (f"hostname {host} && ip link set lo up && {first_command} && echo ready && while :; do sleep 3600; done")
        with open(os.path.join(self.folder, f"{host}.out"), "ab") as log:
            process = subprocess.Popen(["unshare", "-n", "-u", "-i", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh",
                                        "-c", init], stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment(),
                                       cwd="/")
        self.first[host] = process
        if process.stdout.readline() != "ready\n":
            raise AssertionError(f"{host}: cannot make namespaces")
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="utf-8") as file:
            self.inits[host] = int(file.read().split()[0])

    def _start_host(self, host):
        # The host's spool and tmp folders begin empty, as on a host that keeps them in memory. Slurm 22.05 fails if it
        # finds files that were left when the host was lost.
        for kind in ["spool", "tmp"]:
            shutil.rmtree(os.path.join(self.folder, f"{kind}-{host}"), ignore_errors=True)
            os.makedirs(os.path.join(self.folder, f"{kind}-{host}"))
        self._start_namespaces(host, "mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && "
                                     f"mount --bind {self.folder}/hosts /etc/hosts")
        subprocess.run(["ip", "link", "add", "eth0", "netns", str(self.inits[host]), "type", "veth",
                        "peer", "name", host, "netns", str(self.inits["switch"])], check=True)
        self.run("ip", "address", "add", HOSTS[host] + "/24", "dev", "eth0", host=host)
        self.run("ip", "link", "set", "eth0", "up", host=host)
        self.run("ip", "link", "set", host, "master", "bridge", "up", host="switch")

    def _idle_nodes(self):
        return self.run("sinfo", "-h", "-N", "-o", "%T", check=False).split().count("idle")
