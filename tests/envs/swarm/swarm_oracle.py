"""The rules of the swarm environments in plain float64 loops; nothing here uses jax.

`p` is a mapping of parameter values by name. One world at a time.
"""

import math

import numpy as np

UNIT = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))


def direction(action):
    """Where an agent pushes itself, from a move or five pushes."""
    if np.ndim(action) == 0:
        return np.array(UNIT[int(action)], float)
    return np.array([action[2] - action[1], action[4] - action[3]])


def apart(a, b):
    return math.hypot(*(np.asarray(a) - np.asarray(b)))


def contact(a, b, reach, p):
    """The force of b on a."""
    d = apart(a, b)
    if d == 0:
        return np.zeros(2)
    k = p["contact_margin"]
    return p["contact_force"] * k * np.logaddexp(0, (reach - d) / k) * (a - b) / d


def navigation_frame(world, i, p, k):
    """Rows x and y of agent i's own frame."""
    v, goal = world["velocity"][i], world["goal"][i] - world["position"][i]
    speed, far = math.hypot(*v), math.hypot(*goal)
    if speed > 1e-6:
        x = v / speed
    elif far > 0:
        x = goal / far
    else:
        x = np.array([1.0, 0.0])
    y = np.array([-x[1], x[0]])
    rows = navigation_rows(world, i, p, k)
    centre = sum((row[:2] for row in rows), np.zeros(2))
    side = centre @ y if centre @ y != 0 else goal @ y
    return np.array([x, -y if side < 0 else y])


def navigation_rows(world, i, p, k):
    """The rows of the things that agent i sees, in the world's frame, nearest first."""
    me, v = world["position"][i], world["velocity"][i]
    things = []
    for j, place in enumerate(world["position"]):
        if j != i:
            things.append((place, world["velocity"][j], world["goal"][j], (1, 0, 0)))
    things += [(place, np.zeros(2), place, (0, 1, 0)) for place in world["goal"]]
    things += [(place, np.zeros(2), place, (0, 0, 1)) for place in world["landmark"]]
    near = [thing for thing in things if apart(thing[0], me) <= p["view_range"]]
    near.sort(key=lambda thing: apart(thing[0], me))
    return [np.concatenate([x - me, w - v, g - me, kind]) for x, w, g, kind in near[:k]]


def navigation_sees(world, i, p, k, own):
    """``(own features, entities [k, 9], mask [k])`` of agent i."""
    me, v, goal = world["position"][i], world["velocity"][i], world["goal"][i]
    rows = navigation_rows(world, i, p, k)
    features = np.concatenate([v, me, goal - me])
    if own:
        frame = navigation_frame(world, i, p, k)
        features = np.concatenate([[math.hypot(*v)], frame @ (goal - me)])
        rows = [
            np.concatenate([frame @ row[:2], frame @ row[2:4], frame @ row[4:6], row[6:]])
            for row in rows
        ]
    entities, mask = np.zeros((k, 9)), np.arange(k) < len(rows)
    if rows:
        entities[: len(rows)] = rows
    return features, entities, mask


def navigation_step(world, action, p, k, own, shared):
    """``(position, velocity, reward, touched agents, hit obstacle, at goal)``."""
    position, velocity = world["position"], world["velocity"]
    agents = range(len(position))
    forces = []
    for i in agents:
        push = direction(action[i])
        if own:
            push = push @ navigation_frame(world, i, p, k)
        force = p["agent_accel"] * push
        for j in agents:
            if j != i:
                force = force + contact(position[i], position[j], 2 * p["agent_size"], p)
        for obstacle in world["landmark"]:
            reach = p["agent_size"] + p["obstacle_size"]
            force = force + contact(position[i], obstacle, reach, p)
        forces.append(force)
    velocity = velocity * (1 - p["damping"]) + np.array(forces) / p["mass"] * p["dt"]
    for i in agents:
        speed = math.hypot(*velocity[i])
        if speed > p["max_speed"]:
            velocity[i] *= p["max_speed"] / speed
    position = position + velocity * p["dt"]
    reward, touched, hits, here = [], [], [], []
    for i in agents:
        left = apart(position[i], world["goal"][i])
        here.append(left < p["goal_distance"])
        value = p["goal_reward"] if here[-1] else -p["distance_weight"] * left
        touched.append(
            sum(apart(position[i], position[j]) < 2 * p["agent_size"] for j in agents if j != i)
        )
        hits.append(
            any(
                apart(position[i], x) < p["agent_size"] + p["obstacle_size"]
                for x in world["landmark"]
            )
        )
        value -= p["collision_penalty"] * touched[-1] + p["obstacle_penalty"] * hits[-1]
        reward.append(value)
    if shared:
        reward = [sum(reward)] * len(reward)
    return position, velocity, np.array(reward), touched, hits, here


def moments(me, things, reach):
    """Count and means of x, y, x x, x y, y y of the things within reach."""
    near = [x - me for x in things if apart(x, me) <= reach]
    if not near:
        return np.zeros(6)
    means = np.mean([[x, y, x * x, x * y, y * y] for x, y in near], axis=0)
    return np.concatenate([[len(near)], means])


def nearest_rows(me, things, rows, reach, k):
    """The rows of the k nearest things within reach, side by side, padded with 0."""
    order = sorted(
        (j for j, x in enumerate(things) if apart(x, me) <= reach),
        key=lambda j: (apart(things[j], me), j),
    )[:k]
    width = len(rows[0]) if len(rows) else 0
    found = [rows[j] for j in order] + [np.zeros(width)] * (k - len(order))
    return np.concatenate([np.zeros(0), *found])


def box_sees(world, i, view, range_, k, agents_k):
    """What agent i sees in a box: itself, present landmarks if any are given, agents."""
    me, v = world["position"][i], world["velocity"][i]
    parts = [me, v]
    others = [j for j in range(len(world["position"])) if j != i]
    places = [world["position"][j] for j in others]
    if "present" in world:
        things = [x for x, there in zip(world["landmark"], world["present"], strict=True) if there]
        if view == "moments":
            parts.append(moments(me, things, range_))
        elif k:
            rows = [np.append(x - me, 1) for x in things] or [np.zeros(3)]
            parts.append(nearest_rows(me, things, rows, range_, k))
    if agents_k and view == "moments":
        parts.append(moments(me, places, range_))
    elif agents_k:
        rows = [
            np.concatenate([world["position"][j] - me, world["velocity"][j] - v]) for j in others
        ] or [np.zeros(4)]
        parts.append(nearest_rows(me, places, rows, range_, agents_k))
    return np.concatenate(parts)


def bumps(x, means, variance):
    return sum(math.exp(-(apart(x, mean) ** 2) / (2 * variance)) for mean in means)
