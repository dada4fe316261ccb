#!/usr/bin/env python3
"""Plimsoll's menu solver against CBC (through PuLP), on the same instances, in turns, in one run.

Both get whole weights and one thread. CBC's time is what its own log reports, without Python, without
writing or reading the model; Plimsoll's is the median of repeated calls with menus in memory. Both
answers are added up again here from the menus.

    cargo build --release -p plimsoll-pack --example solver_bench
    benches/solver/against_cbc.py [--seeds 3] [--gap 1e-6]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CBC = ROOT / "crates/lab/papers/src/knapsack/table4/cbc.py"
SIZES = [(100, 10), (500, 10), (1000, 10), (100, 100)]


def with_pulp():
    """Runs this script again in a virtual environment that has PuLP, made outside the repository."""
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    environment = cache / "plimsoll" / "bench-venv"
    python = environment / "bin" / "python"
    if pathlib.Path(sys.prefix) == environment:
        sys.exit("PuLP does not import although it is installed; remove " + str(environment))
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "pulp==3.*"], check=True)
    os.execv(python, [str(python), *sys.argv])


try:
    import pulp
except ImportError:
    with_pulp()

sys.dont_write_bytecode = True
from instances import UNITS, menus


def solve_cbc(instance, gap, limit):
    """Wall and CPU seconds that CBC reports, and the cost of its choice."""
    given = json.dumps({"target": UNITS, "limit_seconds": limit, "gap": gap, "menus": instance})
    out = subprocess.run([sys.executable, str(CBC)], check=True, input=given, capture_output=True, text=True).stdout
    found = json.loads(out)
    return found["wall_ms"] / 1e3, found["cpu_ms"] / 1e3, found["cost"] if found["fits"] else float("inf")


def solve_plimsoll(binary, path):
    out = subprocess.run([str(binary), "solve", str(path)], check=True, capture_output=True, text=True).stdout
    return json.loads(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="instances per size")
    parser.add_argument("--gap", type=float, default=1e-6, help="relative gap at which CBC may stop")
    parser.add_argument("--limit", type=float, default=120, help="seconds given to CBC per instance")
    parser.add_argument("--binary", default=ROOT / "target/release/examples/solver_bench")
    options = parser.parse_args()
    print(f"CBC through PuLP {pulp.__version__}, gap {options.gap:g}, one thread each\n")
    print("| backends × weights | CBC, median (s) | its CPU time | Plimsoll, median (ms) | its CPU time | times faster | Plimsoll's gap, worst | its cost over CBC's, worst |")
    print("|---|---|---|---|---|---|---|---|")
    for backends, entries in SIZES:
        cbc, cbc_cpu, ours, ours_cpu, gaps, excess = [], [], [], [], [], []
        for seed in range(1, options.seeds + 1):
            instance = menus(backends, entries, seed)
            with tempfile.NamedTemporaryFile("w", suffix=".menus") as file:
                file.write(f"{UNITS}\n")
                for menu in instance:
                    file.write(" ".join(f"{weight} {cost!r}" for weight, cost in menu) + "\n")
                file.flush()
                first = solve_plimsoll(options.binary, file.name)
                wall, cpu, cost = solve_cbc(instance, options.gap, options.limit)
                second = solve_plimsoll(options.binary, file.name)
            cbc.append(wall)
            cbc_cpu.append(cpu)
            ours += [first["seconds"], second["seconds"]]
            ours_cpu += [first["cpu_seconds"], second["cpu_seconds"]]
            gaps.append(first["gap"])
            excess.append(first["objective"] / cost - 1)
        median = statistics.median
        print(
            f"| {backends} × {entries} | {median(cbc):.2f} | {median(cbc_cpu):.2f} "
            f"| {median(ours) * 1e3:.3f} | {median(ours_cpu) * 1e3:.3f} "
            f"| **{median(cbc) / median(ours):,.0f}** | {max(gaps):.0e} | {max(excess):+.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
