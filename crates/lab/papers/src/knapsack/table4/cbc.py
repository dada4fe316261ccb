"""Solves one packing with CBC, as the paper does, and prints the CPU seconds that CBC reports and the
cost of its choice. Standard input: {"target": int, "limit_seconds": float, "menus": [[[weight, cost]]]}.
Exit code 3: PuLP is not installed."""
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
    problem.solve(pulp.PULP_CBC_CMD(msg=False, threads=1, timeLimit=limit, logPath=log))
    with open(log) as file:
        text = file.read()
seconds = float(re.search(r"Total time \(CPU seconds\):\s+(\S+)", text).group(1))
picks = [max(menu, key=lambda entry: entry[0].value() or 0) for menu in chosen]
solved = sum(weight for _, weight, _ in picks) >= given["target"]
# PuLP calls a solution at the time limit optimal, too.
ended = "Optimal solution found" in text
print(json.dumps({"cpu_ms": seconds * 1e3, "cost": sum(cost for *_, cost in picks), "ended": ended and solved}))
