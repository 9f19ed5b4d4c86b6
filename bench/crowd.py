#!/usr/bin/env python3
"""What 200 clients at a run's page cost it: step times and losses of the demo's model alone and watched, by turns.

    bench/crowd.py [--build FOLDER] [--rounds N] [--steps N] [--out FILE] [key=value ...]

A quarter of the clients says nothing, one sends half a request, one asks for the stream of events and never reads it,
one asks to stop the run without the token. Writes bench/results/DATE-cpu-crowd.json. Exit status 1 when a loss differs.
"""
import argparse
import datetime
import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile

from adamw_8bit import text_of
from phases import processor

CLIENTS = 200
SAYS = [b"", b"GET /state HTT", b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n"]


def run(o, served):
    """Losses and step times in seconds, of the clock."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        out.mkdir()
        command = [o.build / "snug", "train", "configs/demo.yaml", f"datasets.0.path={text_of(o.build)}", f"max_steps={o.steps}", "eval_strategy=no",
                   "save_strategy=no", "logging_steps=1", "overwrite_output_dir=true", f"output_dir={out}", "report_to=none", "num_threads=1",
                   "--json", *(["--serve=0"] if served else []), *o.settings]
        if served:
            (out / "PAUSE").touch()
        p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        clients = []
        if served:
            port = next(int(m[1]) for m in (re.search(r"127\.0\.0\.1:(\d+)", line) for line in p.stderr) if m)
            for i in range(CLIENTS):
                clients.append(socket.create_connection(("127.0.0.1", port)))
                clients[-1].sendall(SAYS[i % len(SAYS)])
            (out / "PAUSE").unlink()
        text, said = p.communicate()
        for c in clients:
            c.close()
        if p.returncode:
            sys.exit(said)
        result = json.loads(text)
        return result["losses"], result["measured"]["step_ms"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    o = parser.parse_args()
    times, losses = {False: [], True: []}, []
    for i in range(o.rounds):
        for served in (False, True) if i % 2 == 0 else (True, False):
            found, ms = run(o, served)
            losses.append(found)
            times[served].append(ms)
    same = all(x == losses[0] for x in losses)
    alone, watched = (statistics.median(times[served]) for served in (False, True))
    report = {"date": str(datetime.date.today()), "hardware": processor(), "command": "bench/crowd.py", "clients": CLIENTS,
              "what": "the demo's model on one thread, median step in ms of each run, alone and with clients at its page, by turns",
              "alone_ms": [round(x, 3) for x in times[False]], "watched_ms": [round(x, 3) for x in times[True]],
              "ratio": round(watched / alone, 4), "losses_equal": same}
    path = o.out or pathlib.Path("bench/results") / f"{report['date']}-cpu-crowd.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"alone {alone:.2f} ms, {CLIENTS} clients {watched:.2f} ms: {watched / alone:.3f} of it; losses {'equal' if same else 'DIFFER'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
