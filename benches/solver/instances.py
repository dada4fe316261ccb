"""Heterogeneous menus, made the way a controller makes them (KnapsackLB §4.2-4.4), from a seed.

Backends of 1, 2, 4 and 8 cores (sizes 1:2:4:10, speeds +-40 %) at 80 % load have the latency of an M/M/c
queue. Each is explored with Algorithm 1 under 5 % noise, a quadratic is fitted to the samples, and the
menu holds equally spaced weights up to the greatest explored one, with non-decreasing costs.
"""
import random

UNITS = 1_000_000
LOAD = 0.8
NOISE = 0.05


def mmc_latency(share, capacity, cores, service_time):
    utilisation = share / capacity
    if utilisation <= 0:
        return service_time
    offered = utilisation * cores
    blocking = 1.0
    for servers in range(1, cores + 1):
        blocking = offered * blocking / (servers + offered * blocking)
    waits = blocking / (1 - utilisation * (1 - blocking))
    return service_time * (1 + waits / (cores * (1 - utilisation)))


def explore(latency, capacity, first, rng):
    """Algorithm 1: raise the weight until latency says stop, then bisect. Samples and greatest weight."""
    measure = lambda share: latency(share) * (1 + NOISE * rng.gauss(0, 1))
    idle = measure(0.0)
    samples, good, now = [(0.0, idle)], 0.0, first
    for _ in range(40):
        overloaded = now >= capacity * 0.9999
        seen = float("inf") if overloaded else measure(now)
        if seen <= 5 * idle:
            samples.append((now, seen))
            step = now * idle / seen
            done = abs(now - good) <= 0.05 * now
            good, following = max(good, now), now + step
        else:
            following = (now + good) / 2
            done = abs(following - good) <= 0.05 * following
        if done:
            break
        now = following
    return samples, good


def quadratic(samples):
    """Least squares y = p0 + p1 x + p2 x^2 on the normal equations, x scaled to 0..1."""
    scale = max(x for x, _ in samples) or 1.0
    size = min(3, len(samples))
    rows = [
        [sum((x / scale) ** (i + j) for x, _ in samples) for j in range(size)]
        + [sum(y * (x / scale) ** i for x, y in samples)]
        for i in range(size)
    ]
    for i in range(size):
        pivot = max(range(i, size), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k in range(size):
            if k != i:
                factor = rows[k][i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(rows[k], rows[i])]
    p = [rows[i][size] / rows[i][i] for i in range(size)]
    return lambda x: sum(c * (x / scale) ** i for i, c in enumerate(p))


def menus(backends, entries, seed):
    """One list of (weight, cost in ms) per backend; the weights must sum up to UNITS."""
    rng = random.Random(seed)
    kinds = rng.choices([(1, 1.0), (2, 2.0), (4, 4.0), (8, 10.0)], weights=[16, 8, 4, 2], k=backends)
    sizes = [size * rng.uniform(0.6, 1.4) for _, size in kinds]
    capacities = [size / sum(sizes) / LOAD for size in sizes]
    result = []
    for (cores, _), capacity in zip(kinds, capacities):
        service_time = 10.0 * rng.uniform(0.9, 1.1)
        latency = lambda share: mmc_latency(share, capacity, cores, service_time)
        samples, greatest = explore(latency, capacity, min(1 / backends, capacity / 2), rng)
        fitted, most, menu = quadratic(samples), 0.1, []
        for entry in range(entries):
            share = greatest * entry / (entries - 1)
            most = max(most, fitted(share))
            menu.append((round(share * UNITS), most))
        result.append(menu)
    return result
