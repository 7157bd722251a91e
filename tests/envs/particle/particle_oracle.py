"""The rules of the particle worlds in plain float64 loops, for numbers that mpe2 does not let one set.

`p` is a mapping of parameter values by name. One world at a time; nothing here uses jax.
"""

import math

import numpy as np


def contact(a, radius_a, b, radius_b, p):
    """The force of b on a."""
    delta = a - b
    apart = math.hypot(*delta)
    if apart == 0:
        return np.zeros(2)
    margin = p["contact_margin"]
    penetration = margin * np.logaddexp(0, (radius_a + radius_b - apart) / margin)
    return p["contact_force"] * penetration * delta / apart


def move(position, velocity, push, radius, obstacles, obstacle_radius, max_speed, p):
    """Positions and velocities after one step."""
    force = np.array(push, float)
    for i in range(len(position)):
        for j in range(len(position)):
            if j != i:
                force[i] += contact(position[i], radius[i], position[j], radius[j], p)
        for obstacle in obstacles:
            force[i] += contact(position[i], radius[i], obstacle, obstacle_radius, p)
    next_position = position + velocity * p["dt"]
    next_velocity = velocity * (1 - p["damping"]) + force / p["mass"] * p["dt"]
    for i, limit in enumerate(max_speed):
        speed = math.hypot(*next_velocity[i])
        if speed > limit:
            next_velocity[i] *= limit / speed
    return next_position, next_velocity


def direction(action):
    """Where each agent pushes itself, from discrete moves or continuous components."""
    unit = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
    if np.issubdtype(action.dtype, np.integer):
        return np.array([unit[a % 5] for a in action], float)
    return np.array([[a[2] - a[1], a[4] - a[3]] for a in action])


def apart(a, b):
    return math.hypot(*(a - b))


def boundary(position):
    total = 0.0
    for z in np.abs(position):
        if z >= 1:
            total += min(math.exp(2 * z - 2), 10)
        elif z >= 0.9:
            total += 10 * (z - 0.9)
    return total


def by_role(predators, prey, name, p):
    return np.array([p[f"predator_{name}"]] * predators + [p[f"prey_{name}"]] * prey)


def chase(position, velocity, landmark, action, predators, obstacles, p):
    """The step of `tag` and `world_comm`: positions, velocities, and the reward of `tag`."""
    prey = len(position) - predators
    accel, radius = by_role(predators, prey, "accel", p), by_role(predators, prey, "size", p)
    position, velocity = move(
        position,
        velocity,
        direction(action) * accel[:, None],
        radius,
        landmark[:obstacles],
        p["obstacle_size"],
        by_role(predators, prey, "max_speed", p),
        p,
    )
    reward = np.zeros(len(position))
    for i in range(predators, len(position)):
        reward[i] -= p["boundary_weight"] * boundary(position[i])
        for j in range(predators):
            if apart(position[i], position[j]) < radius[i] + radius[j]:
                reward[i] -= p["caught_penalty"]
                reward[:predators] += p["catch_reward"]
    return position, velocity, reward


def tag(position, velocity, landmark, action, predators, p):
    return chase(position, velocity, landmark, action, predators, len(landmark), p)


def world_comm(position, velocity, landmark, action, predators, obstacles, food, p):
    position, velocity, reward = chase(
        position, velocity, landmark, action, predators, obstacles, p
    )
    prey = range(predators, len(position))
    for i in range(predators):
        nearest = min(apart(position[i], position[j]) for j in prey)
        reward[i] -= p["prey_distance_weight"] * nearest
    pieces = landmark[obstacles : obstacles + food]
    for i in prey:
        for piece in pieces:
            if apart(position[i], piece) < p["prey_size"] + p["food_size"]:
                reward[i] += p["food_reward"]
        if len(pieces):
            nearest = min(apart(position[i], piece) for piece in pieces)
            reward[i] -= p["food_distance_weight"] * nearest
    return position, velocity, reward


def spread(position, velocity, landmark, action, p):
    agents = len(position)
    radius = np.full(agents, p["agent_size"])
    push = direction(action) * p["agent_accel"]
    position, velocity = move(position, velocity, push, radius, [], 0, [math.inf] * agents, p)
    team = -sum(min(apart(x, target) for x in position) for target in landmark)
    reward = np.zeros(agents)
    for i in range(agents):
        touched = sum(
            apart(position[i], position[j]) < 2 * p["agent_size"] for j in range(agents) if j != i
        )
        reward[i] = (1 - p["local_ratio"]) * team - p["local_ratio"] * touched
    return position, velocity, reward


def spread_observation(position, velocity, landmark, i):
    """What agent i sees."""
    others = [j for j in range(len(position)) if j != i]
    return np.concatenate(
        [velocity[i], position[i]]
        + [target - position[i] for target in landmark]
        + [position[j] - position[i] for j in others]
        + [np.zeros(2) for _ in others]
    )
