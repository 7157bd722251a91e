"""The rules of `flock` in plain NumPy, an agent at a time."""

import math

import numpy as np

MOVES = [(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1)]


def shortest(d, side, periodic):
    """The nearest image, by looking at all of them."""
    if not periodic:
        return d
    return min((d - side, d, d + side), key=abs)


def step(env, params, state, action):
    """One step without noise; everything in float64 and Python.

    Args:
        env: the environment, for its sizes and switches.
        params: a dict of numbers.
        state: a dict of NumPy arrays named as in `FlockState`, without the view.
        action: ``[A]`` or ``[A, 2]``.

    Returns:
        ``(state, reward [A], moments [A, F])``.
    """
    side, p, agents = env.side, params, env.num_agents
    slowest = p["max_speed"] if env.dynamics == "vicsek" else min(p["min_speed"], p["max_speed"])
    new = {name: np.array(value, np.float64) for name, value in state.items()}
    for i in range(agents):
        first, second = MOVES[action[i]] if env.actions == "discrete" else action[i]
        angle, speed = math.atan2(new["uy"][i], new["ux"][i]), new["speed"][i]
        if env.control == "heading":
            angle += p["max_turn"] * first
            speed += p["max_accel"] * second
        else:
            forward, left = speed + p["max_accel"] * first, p["max_accel"] * second
            speed = math.hypot(forward, left)
            if speed > 0:
                angle += math.atan2(left, forward)
        speed = min(max(speed, slowest), p["max_speed"])
        ux, uy = math.cos(angle), math.sin(angle)
        x, y = new["x"][i] + speed * ux, new["y"][i] + speed * uy
        if env.periodic:
            x, y = x % side, y % side
        else:
            if not 0 <= x <= side:
                x, ux = (-x if x < 0 else 2 * side - x), -ux
            if not 0 <= y <= side:
                y, uy = (-y if y < 0 else 2 * side - y), -uy
        for name, value in zip(("x", "y", "ux", "uy", "speed"), (x, y, ux, uy, speed), strict=True):
            new[name][i] = value

    def way(x, y, i):
        return (
            shortest(new["x"][i] - x, side, env.periodic),
            shortest(new["y"][i] - y, side, env.periodic),
        )

    for k in range(env.num_predators):
        px, py = new["predator_x"][k], new["predator_y"][k]
        dx, dy = min((way(px, py, i) for i in range(agents)), key=lambda d: math.hypot(*d))
        apart = math.hypot(dx, dy)
        share = min(p["predator_speed"], apart) / apart if apart > 0 else 0
        px, py = px + share * dx, py + share * dy
        if env.periodic:
            px, py = px % side, py % side
        new["predator_x"][k], new["predator_y"][k] = px, py
    reward, moments = np.zeros(agents), []
    for i in range(agents):
        near = []
        for j in range(agents):
            dx, dy = way(new["x"][i], new["y"][i], j)
            if j != i and math.hypot(dx, dy) <= 1:
                near.append((dx, dy, new["ux"][j], new["uy"][j]))
        u = (new["ux"][i], new["uy"][i])
        aligned = sum(u[0] * n[2] + u[1] * n[3] for n in near) / max(len(near), p["company"])
        touching = sum(math.hypot(n[0], n[1]) < p["body"] for n in near)
        hit, hazards = 0, []
        kinds = (("obstacle", env.num_obstacles), ("predator", env.num_predators))
        for kind, count in kinds:
            if not count:
                continue
            size = p[f"{kind}_size"]
            ways = [
                [-d for d in way(new[f"{kind}_x"][k], new[f"{kind}_y"][k], i)] for k in range(count)
            ]
            dx, dy = min(ways, key=lambda d: math.hypot(*d))
            apart = math.hypot(dx, dy)
            hit = max(hit, apart < size)
            length = min(max(1 - (apart - size), 0), 1)
            hazards.append((dx / apart * length, dy / apart * length) if apart > 0 else (0, 0))
        if not env.periodic:
            x, y = new["x"][i], new["y"][i]
            hazards.append(
                tuple(max(0, 1 - (side - z)) * ((side - z) >= 0) - max(0, 1 - z) for z in (x, y))
            )
        reward[i] = aligned - p["collision_cost"] * touching - p["hazard_cost"] * hit
        own = [new["speed"][i] / p["max_speed"], len(near) / (len(near) + p["company"])]
        vectors = [*hazards]
        mean = np.mean(near, axis=0) if near else np.zeros(4)
        vectors += [mean[:2], mean[2:]]
        away = np.zeros(2)
        for dx, dy, *_ in near:
            d = np.array([dx, dy]) / p["separation"]
            away -= d * max(0, 1 - d @ d)
        vectors.append(away)
        for v in vectors:
            own += [v[0] * u[0] + v[1] * u[1], v[1] * u[0] - v[0] * u[1]]
        moments.append(own)
    return new, reward, np.array(moments)
