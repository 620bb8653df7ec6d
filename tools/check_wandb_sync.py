#!/usr/bin/env python3
"""Starts a stand-in for W&B's server on this machine, uploads a run's W&B folder to it with `wandb sync`, and checks
that the rows that arrive agree with metrics.jsonl.

    .venv-trackers/bin/python tools/check_wandb_sync.py RUN [path/to/wandb]

RUN is the output folder of a run with --tracker wandb.

Tested with wandb 0.31.0. The script needs no network."""
import gzip
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROWS, END = {}, {}


class Server(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def content(self):
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(data) if self.headers.get("Content-Encoding") == "gzip" else data

    def do_GET(self):
        self.answer({})

    def do_PUT(self):
        self.content()
        self.answer({})

    def do_POST(self):
        data = self.content()
        if "file_stream" in self.path:
            body = json.loads(data)
            for name, part in body.get("files", {}).items():
                if "history" in name:
                    ROWS.update({part["offset"] + i: json.loads(row) for i, row in enumerate(part["content"])})
            if "exitcode" in body:
                END["exit_code"] = body["exitcode"]
            return self.answer({"limits": {}})
        if "graphql" not in self.path:
            return self.answer({})
        body = json.loads(data)
        project = {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}
        bucket = {"id": "UnVuOg==", "name": body.get("variables", {}).get("name") or "run", "displayName": "run",
                  "config": "{}", "sweepName": None, "historyLineCount": 0, "project": project}
        self.answer({"data": {"upsertBucket": {"bucket": bucket, "inserted": True},
                              "createRunFiles": {"runID": "run", "uploadHeaders": [], "files": []},
                              "serverInfo": {"features": []}, "viewer": None, "project": {"run": None}}})


def main(run, program):
    place = json.loads((run / "trackers.json").read_text())["wandb"]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / place["folder"]
        shutil.copytree(run / "wandb" / place["folder"], copy, ignore=shutil.ignore_patterns("*.synced", "*.syncstate"))
        environment = {**os.environ, "WANDB_API_KEY": "0" * 40,
                       "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}"}
        subprocess.run([program, "sync", str(copy)], env=environment, check=True, timeout=120)
    server.shutdown()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert sorted(ROWS) == list(range(len(lines))), sorted(ROWS)
    for i, line in enumerate(lines):
        assert (ROWS[i]["_step"], ROWS[i]["train/global_step"]) == (i, line["step"])
        for key, tag in [("loss", "train/loss"), ("eval_loss", "eval/loss"), ("train_loss", "train/train_loss")]:
            if line["kind"] != "skipped" and line.get(key) is not None:
                assert ROWS[i][tag] == line[key], line
    print(f"wandb sync uploaded {len(lines)} rows, exit code {END['exit_code']}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else str(Path(sys.executable).parent / "wandb"))
