#!/usr/bin/env python3
"""Starts ranks with the variables that torchrun of PyTorch 2 sets, for machines without PyTorch:

    torchrun.py [--standalone] [--nnodes N] [--node-rank I] --nproc-per-node N [--master-addr A] [--master-port P]
                [--rdzv-id ID] --no-python PROGRAM [ARGUMENT...]

Like torchrun, node 0 holds MASTER_PORT for a store that answers no foreign message, and sets
TORCHELASTIC_USE_AGENT_STORE. After the first failure, the other ranks get SIGTERM, and later SIGKILL. SIGTERM and SIGINT
are passed on. Unlike torchrun, -n is a short form of --nproc-per-node, the exit code is the exit code of the first rank that failed (128 + n after signal n), and
without --master-port the port is one that is free now."""
import argparse
import os
import signal
import socket
import subprocess
import sys
import time

GRACE_S = 2  # torchrun: 30


def arguments():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("-n", "--nproc-per-node", "--nproc_per_node", type=int, default=1)
    for name, default in [("nnodes", 1), ("node-rank", 0), ("master-port", 0)]:
        parser.add_argument("--" + name, "--" + name.replace("-", "_"), type=int, default=default)
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument("--rdzv-id", "--rdzv_id", default="none")
    parser.add_argument("--no-python", "--no_python", action="store_true", required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def store_socket(options):
    """The socket of the agent's store. Nobody accepts its connections here, so they look half-open."""
    store = socket.socket()
    store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    store.bind(("127.0.0.1" if options.nnodes == 1 else "0.0.0.0", options.master_port))
    store.listen()
    return store


def environment(options, port, local_rank):
    per_node, nodes = options.nproc_per_node, options.nnodes
    values = {
        "LOCAL_RANK": local_rank, "RANK": options.node_rank * per_node + local_rank, "GROUP_RANK": options.node_rank,
        "ROLE_RANK": options.node_rank * per_node + local_rank, "ROLE_NAME": "default", "LOCAL_WORLD_SIZE": per_node,
        "WORLD_SIZE": nodes * per_node, "GROUP_WORLD_SIZE": nodes, "ROLE_WORLD_SIZE": nodes * per_node,
        "MASTER_ADDR": options.master_addr, "MASTER_PORT": port, "TORCHELASTIC_RESTART_COUNT": 0,
        "TORCHELASTIC_MAX_RESTARTS": 0, "TORCHELASTIC_RUN_ID": options.rdzv_id, "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": 1, "TORCHELASTIC_ERROR_FILE": "/dev/null"}
    if per_node > 1 and "OMP_NUM_THREADS" not in os.environ:
        values["OMP_NUM_THREADS"] = 1
    return {**os.environ, **{name: str(value) for name, value in values.items()}}


def main():
    options = arguments()
    port, store = options.master_port, None
    if options.node_rank == 0:
        store = store_socket(options)
        port = store.getsockname()[1]
    ranks = []

    def forward(number, _):
        for rank in ranks:
            rank.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    for local_rank in range(options.nproc_per_node):
        ranks.append(subprocess.Popen(options.command, env=environment(options, port, local_rank)))
    code, killed_at = 0, None
    while any(rank.poll() is None for rank in ranks):
        failed = [rank.returncode for rank in ranks if rank.returncode]
        if failed and not code:
            code, killed_at = failed[0], time.monotonic() + GRACE_S
            forward(signal.SIGTERM, None)
        if killed_at and time.monotonic() > killed_at:
            forward(signal.SIGKILL, None)
        time.sleep(0.02)
    code = code or next((rank.returncode for rank in ranks if rank.returncode), 0)
    sys.exit(128 - code if code < 0 else code)


if __name__ == "__main__":
    main()
