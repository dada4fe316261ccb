#!/usr/bin/env python3
"""Whether four threads that balance as one wait no longer than one: `threads.py --plimsoll PATH --lab PATH`.

Ten emulated backends of two cores and 10 ms (exponential), Poisson requests at 70 % of what they can serve, the same
arrivals for one thread and for four, turn by turn. What is compared are all requests of all rounds together.
"""

import argparse
import csv
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

BACKENDS = range(19101, 19111)
PORT = 18021
MEAN_MS, CORES = 10, 2
CAPACITY = len(BACKENDS) * CORES * 1000 / MEAN_MS

CONFIG = """
proxy:
  threads: {threads}
  egress: [ {{ name: bench, listen: "127.0.0.1:{port}" }} ]
  pools: [ {{ name: be, policy: {policy}, backends: [ {servers} ] }} ]
"""


def wait(port, process):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise SystemExit(f"nobody listens on port {port}")


def latencies(args, directory, threads, policy, seed):
    """Of one run, in ms; those that failed end the benchmark."""
    servers = ", ".join(f'{{ name: b{p}, address: "127.0.0.1:{p}" }}' for p in BACKENDS)
    config = f"{directory}/proxy.yaml"
    with open(config, "w") as file:
        file.write(CONFIG.format(threads=threads, port=PORT, policy=policy, servers=servers))
    proxy = subprocess.Popen([args.plimsoll, "proxy", "run", "--config", config], stderr=subprocess.DEVNULL)
    try:
        wait(PORT, proxy)
        records = f"{directory}/records.csv"
        command = [args.lab, "load", "--url", f"http://127.0.0.1:{PORT}/", "--rate", str(0.7 * CAPACITY)]
        command += ["--warmup", "2s", "--duration", f"{args.seconds}s", "--seed", str(seed), "--records", records]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with open(records) as file:
            rows = list(csv.DictReader(file))
        failed = sum(row["ok"] not in ("true", "1") for row in rows)
        if failed:
            raise SystemExit(f"{policy}, {threads} threads: {failed} requests failed")
        return [float(row["latency_us"]) / 1e3 for row in rows if int(row["start_ns"]) >= 2e9]
    finally:
        proxy.terminate()
        proxy.wait()


def p99(sample):
    return sorted(sample)[int(0.99 * (len(sample) - 1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plimsoll", default="target/release/plimsoll")
    parser.add_argument("--lab", default="target/release/plimsoll-lab")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10, help="of each run")
    parser.add_argument("policies", nargs="*", default=["expected_delay", "bloc"])
    args = parser.parse_intermixed_args()
    directory = tempfile.mkdtemp(prefix="plimsoll-proxy-threads-")
    spec = f"{directory}/backends.yaml"
    with open(spec, "w") as file:
        file.write("backends:\n")
        for port in BACKENDS:
            file.write(f"  - {{ name: b{port}, listen: 127.0.0.1:{port}, cores: {CORES}, ")
            file.write(f"service: {{ kind: exponential, mean: {MEAN_MS}ms }} }}\n")
    backends = subprocess.Popen([args.lab, "backends", "--spec", spec], stdout=subprocess.DEVNULL)
    try:
        wait(BACKENDS[0], backends)
        print("| policy | requests each | mean, 1 thread | 4 threads | ratio | p99, 1 thread | 4 threads | ratio |")
        print("|---|---|---|---|---|---|---|---|")
        for policy in args.policies:
            taken = {1: [], 4: []}
            for number in range(args.rounds):
                # Who goes first changes: what the machine does else falls on both alike.
                for threads in (1, 4) if number % 2 else (4, 1):
                    taken[threads] += latencies(args, directory, threads, policy, number + 1)
            means = {threads: statistics.fmean(sample) for threads, sample in taken.items()}
            tails = {threads: p99(sample) for threads, sample in taken.items()}
            print(
                f"| {policy} | {len(taken[1])} | {means[1]:.2f} ms | {means[4]:.2f} ms | {means[4] / means[1]:.3f} "
                f"| {tails[1]:.1f} ms | {tails[4]:.1f} ms | {tails[4] / tails[1]:.3f} |",
                flush=True,
            )
    finally:
        backends.terminate()
        backends.wait()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
