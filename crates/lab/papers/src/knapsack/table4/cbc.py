"""Solves one packing with CBC, as the paper does, and prints the times that CBC reports and the cost of
its choice. Standard input: {"target": int, "limit_seconds": float, "menus": [[[weight, cost]]]}, and
"gap", the relative gap at which it may stop. Exit code 3: PuLP is not installed.
benches/solver/against_cbc.py runs it as well."""
import json
import os
import re
import sys
import tempfile

try:
    import pulp
except ImportError:
    sys.exit(3)

given = json.load(sys.stdin)
problem = pulp.LpProblem("menus", pulp.LpMinimize)
chosen = [
    [(pulp.LpVariable(f"x_{i}_{j}", cat="Binary"), *entry) for j, entry in enumerate(menu)]
    for i, menu in enumerate(given["menus"])
]
every = [entry for menu in chosen for entry in menu]
problem += pulp.lpSum(x * cost for x, _, cost in every)
for menu in chosen:
    problem += pulp.lpSum(x for x, _, _ in menu) == 1
problem += pulp.lpSum(x * weight for x, weight, _ in every) >= given["target"]
with tempfile.TemporaryDirectory() as folder:
    log = os.path.join(folder, "log")
    limit = given["limit_seconds"]
    gap = given.get("gap")
    problem.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, gapRel=gap, timeLimit=limit, logPath=log))
    with open(log) as file:
        text = file.read()
times = re.search(r"Total time \(CPU seconds\):\s+(\S+)\s+\(Wallclock seconds\):\s+(\S+)", text)
cpu_ms, wall_ms = (1e3 * float(seconds) for seconds in times.groups())
picks = [max(menu, key=lambda entry: entry[0].value() or 0) for menu in chosen]
solved = sum(weight for _, weight, _ in picks) >= given["target"]
# PuLP calls a solution at the time limit optimal, too.
ended = "Optimal solution found" in text
cost = sum(cost for *_, cost in picks)
print(json.dumps({"cpu_ms": cpu_ms, "wall_ms": wall_ms, "cost": cost, "fits": solved, "ended": ended and solved}))
