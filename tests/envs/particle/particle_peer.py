"""Transitions recorded from mpe2's own float64 worlds, out of states chosen to make things happen.

A record has a leading axis over transitions; `position` and so on are the world before the step,
`next_position` and so on after it, `reward` what the peer's environment pays, `observation` what its
scenario shows, both after the step.
"""

import collections
import dataclasses
import functools

import numpy as np
from mpe2.simple_spread.simple_spread import raw_env as spread_env
from mpe2.simple_tag.simple_tag import raw_env as tag_env
from mpe2.simple_world_comm.simple_world_comm import raw_env as world_comm_env

PEERS = {"tag": tag_env, "spread": spread_env, "world_comm": world_comm_env}
NAMES = {
    "num_predators": "num_adversaries",
    "num_prey": "num_good",
    "num_agents": "N",
    "num_obstacles": "num_obstacles",
    "num_food": "num_food",
    "num_forests": "num_forests",
}


def make_peer(id, actions, **fields):
    """The peer's environment for the fields of ours."""
    kwargs = {NAMES[name]: value for name, value in fields.items()}
    return PEERS[id](continuous_actions=actions == "continuous", **kwargs)


@dataclasses.dataclass
class Record:
    position: np.ndarray
    velocity: np.ndarray
    landmark: np.ndarray
    message: np.ndarray
    action: np.ndarray
    next_position: np.ndarray
    next_velocity: np.ndarray
    next_message: np.ndarray
    reward: np.ndarray
    observation: list
    radius: np.ndarray
    landmark_radius: np.ndarray
    solid: np.ndarray
    predator: np.ndarray
    max_speed: np.ndarray

    def __len__(self):
        return len(self.position)

    def __getitem__(self, index):
        """The transitions at `index` (a mask or a slice)."""
        constant = {"radius", "landmark_radius", "solid", "predator", "max_speed"}
        taken = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "observation":
                value = [x[index] for x in value]
            elif field.name not in constant:
                value = value[index]
            taken[field.name] = value
        return Record(**taken)


@functools.cache
def record(id, actions, states=60, steps=2, seed=0, **fields):
    """`states * steps` transitions: from each chosen state the peer's world plays on by itself."""
    rng = np.random.default_rng([seed, *fields.values()])
    peer = make_peer(id, actions, **fields)
    peer.reset(seed=seed)
    rows = []
    for index in range(states):
        force(rng, peer.world, REGIMES[index % len(REGIMES)])
        for _ in range(steps):
            rows.append(transition(peer, random_actions(rng, peer)))
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    observation = columns.pop("observation")
    agents, landmarks = peer.world.agents, peer.world.landmarks
    return Record(
        **{key: np.array(column) for key, column in columns.items()},
        observation=[np.array([o[i] for o in observation]) for i in range(len(agents))],
        radius=np.array([a.size for a in agents]),
        landmark_radius=np.array([x.size for x in landmarks]),
        solid=np.array([x.collide for x in landmarks], bool),
        predator=np.array([getattr(a, "adversary", False) for a in agents]),
        max_speed=np.array([np.inf if a.max_speed is None else a.max_speed for a in agents]),
    )


def random_actions(rng, peer):
    """One action for each agent of the peer; some continuous components are exactly 0 or 1."""
    actions = []
    for agent in peer.world.agents:
        space = peer.action_space(agent.name)
        if peer.continuous_actions:
            raw = np.clip(rng.uniform(-0.2, 1.2, space.shape[0]), 0, 1)
            actions.append(single(raw))
        else:
            actions.append(int(rng.integers(space.n)))
    return actions


def transition(peer, actions):
    """Steps the peer's environment through its own action handling and rewards."""
    world = peer.world
    before = snapshot(world)
    peer.current_actions = list(actions)
    peer._execute_world_step()
    after = snapshot(world)
    return {
        **before,
        "action": pad(actions),
        **{f"next_{key}": value for key, value in after.items() if key != "landmark"},
        "reward": np.array([peer.rewards[agent.name] for agent in world.agents]),
        "observation": observations(peer),
    }


def observations(peer):
    """What each agent sees, in float64."""
    return [peer.scenario.observation(agent, peer.world) for agent in peer.world.agents]


def snapshot(world):
    return {
        "position": np.array([a.state.p_pos for a in world.agents], float),
        "velocity": np.array([a.state.p_vel for a in world.agents], float),
        "landmark": np.array([x.state.p_pos for x in world.landmarks], float).reshape(-1, 2),
        "message": np.array(world.agents[0].state.c, float),
    }


def pad(actions):
    """The actions of all agents as one array; ours pads those that are narrower."""
    if isinstance(actions[0], int):
        return np.array(actions)
    width = max(len(a) for a in actions)
    return np.array([np.pad(a, (0, width - len(a))) for a in actions])


def single(x):
    """Rounded to what float32 can hold, in float64: the same start for both precisions."""
    return np.asarray(x, np.float32).astype(np.float64)


def force(rng, world, regime):
    """Puts a world into a state of one of the `REGIMES`."""
    agents, landmarks = len(world.agents), len(world.landmarks)
    radius = np.array([e.size for e in world.entities])
    position = rng.uniform(-1, 1, (agents + landmarks, 2))
    velocity = rng.uniform(-0.9, 0.9, (agents, 2))
    if regime == "crowd":
        position = rng.uniform(-0.6, 0.6, 2) + rng.uniform(-0.25, 0.25, position.shape)
    elif regime == "verge":
        # Each agent on the verge of contact with another thing, before or after the step, so that
        # an error of 1 % in a radius shows.
        velocity *= rng.integers(2)
        order = [*range(agents, agents + landmarks), *range(agents)]
        for rank, i in enumerate(order):
            if i < agents and rank > 0:
                other = order[rng.integers(rank)]
                share = rng.choice([0.01, 0.001]) * rng.standard_normal()
                reach = (radius[i] + radius[other]) * (1 + share)
                angle = rng.uniform(0, 2 * np.pi)
                position[i] = position[other] + reach * np.array([np.cos(angle), np.sin(angle)])
        position[:agents] -= velocity * world.dt
    elif regime == "border":
        low = np.array([0.86, 0.9, 0.97, 1.0, 2.1, 2.2])
        high = np.array([0.92, 1.0, 1.03, 1.5, 2.2, 3.0])
        band = rng.integers(len(low), size=position.shape)
        sign = rng.choice([-1, 1], position.shape)
        position = sign * rng.uniform(low[band], high[band])
        velocity *= 0.2
    elif regime == "fast":
        angle = rng.uniform(0, 2 * np.pi, agents)
        velocity = 1.6 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for i, entity in enumerate(world.entities):
        entity.state.p_pos = single(position[i])
        entity.state.p_vel = single(velocity[i]) if i < agents else np.zeros(2)
        if i < agents:
            entity.state.c = np.zeros(world.dim_c)
    if not world.agents[0].silent:
        world.agents[0].state.c = single(rng.uniform(0, 1, world.dim_c))


REGIMES = ("free", "crowd", "verge", "border", "fast", "verge")


def distances(a, b):
    """``[N, A, B]`` from ``[N, A, 2]`` and ``[N, B, 2]``."""
    return np.linalg.norm(a[:, :, None] - b[:, None], axis=-1)


def gaps(record, position):
    """Signed distances between the rims of agents and agents (diagonal infinite), and landmarks."""
    between = distances(position, position) - (record.radius[:, None] + record.radius)
    between[:, np.arange(len(record.radius)), np.arange(len(record.radius))] = np.inf
    reach = record.radius[:, None] + record.landmark_radius
    return between, distances(position, record.landmark) - reach


def events(record, first_forest=None, first_food=None):
    """How often what matters happened in a record, as a Counter."""
    agents, landmarks = gaps(record, record.position)
    after, after_landmarks = gaps(record, record.next_position)
    predator, prey = record.predator, ~record.predator
    speed = np.linalg.norm(record.next_velocity, axis=-1)
    z = np.abs(record.next_position[:, prey])
    count = collections.Counter(
        {
            "agents push each other": np.sum(agents < 0) // 2,
            "an obstacle pushes an agent": np.sum(landmarks[:, :, record.solid] < 0),
            "agents at the verge of contact": np.sum(np.abs(agents) < 3e-3) // 2,
            "agents touch after the step": np.sum(after < 0) // 2,
            "a predator touches a prey": np.sum(after[:, predator][:, :, prey] < 0),
            "the speed limit acts": np.sum(np.isclose(speed, record.max_speed, 1e-12, 0)),
            "border: inside": np.sum(z < 0.9),
            "border: linear": np.sum((z >= 0.9) & (z < 1)),
            "border: exponential": np.sum((z >= 1) & (np.exp(2 * z - 2) < 10)),
            "border: clipped": np.sum(np.exp(2 * z - 2) > 10),
        }
    )
    if first_forest is not None:
        inside = after_landmarks[:, :, first_forest:] < 0
        food = after_landmarks[:, prey, first_food:first_forest] < 0
        shared = np.any(inside[:, :, None] & inside[:, None], axis=-1)
        hidden = np.any(inside, axis=-1)
        seen = shared | ~(hidden[:, :, None] | hidden[:, None])
        seen[:, np.eye(len(predator), dtype=bool)] = True
        count.update(
            {
                "inside a forest": np.sum(inside),
                "outside a forest": np.sum(~inside),
                "at the verge of a forest": np.sum(
                    np.abs(after_landmarks[:, :, first_forest:]) < 3e-3
                ),
                "food is touched": np.sum(food),
                "seen within one forest": np.sum(shared) - np.sum(hidden),
                "hidden from the leader's eyes, and seen": np.sum(~seen[:, 0]),
                "hidden from a follower": np.sum(~seen[:, 1:][:, predator[1:]]),
                "hidden from a prey": np.sum(~seen[:, prey]),
                "a prey's velocity is hidden from a prey": np.sum(~seen[:, prey][:, :, prey]),
            }
        )
    return count
