"""Reads `tests/fixtures/pogema.npz`: whole episodes of POGEMA 1.4.0 (see `record_pogema.py`)."""

import dataclasses
import functools
import zlib
from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[2] / "fixtures" / "pogema.npz"
RULES = ("priority", "block_both", "soft")
MODES = ("finish", "nothing", "restart")
METRICS = ("CSR", "ISR", "ep_length", "SoC", "makespan", "avg_throughput")
COLUMNS = (
    *("agents", "height", "width", "radius", "rule", "mode", "horizon", "length"),
    *("queue", "given", "shape", "window_time"),
)
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)])


@dataclasses.dataclass(frozen=True, eq=False)
class Episode:
    """One episode of `T` steps by `A` agents on a map of `H` by `W` cells.

    Attributes:
        obstacles: ``bool[H, W]``.
        radius, rule, mode, horizon: the settings; POGEMA's names.
        shape: which of the recorder's shapes; sizes and radius are equal within one.
        queue: ``int[A, K, 2]``, the goals of each agent in their order, padded with zeros.
        queue_length: ``int[A]``.
        action: ``int[T, A]``, as given by the caller.
        position, goal: ``int[T + 1, A, 2]``; rows and columns, without POGEMA's border.
        reward: ``bool[T, A]``, 1 or 0.
        terminated: ``bool[T, A]``; truncated: ``bool[T]``. POGEMA may set both.
        active: ``bool[T + 1, A]``.
        sight: ``uint32[T + 1]``, `checksum` of what the active agents see.
        window: ``bool[active agents, 3, S, S]`` at `window_time`, or None.
        metrics: what POGEMA reported after the last step, by name.
    """

    obstacles: np.ndarray
    radius: int
    rule: str
    mode: str
    horizon: int
    shape: int
    queue: np.ndarray
    queue_length: np.ndarray
    action: np.ndarray
    position: np.ndarray
    goal: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    active: np.ndarray
    sight: np.ndarray
    window_time: int
    window: np.ndarray | None
    metrics: dict

    @property
    def length(self):
        return len(self.action)

    @property
    def agents(self):
        return self.action.shape[1]


def checksum(windows):
    """CRC-32 of ``bool[active agents, 3, S, S]`` as packed bits; 0 where nobody is active."""
    return zlib.crc32(np.packbits(windows).tobytes()) if windows.size else 0


@functools.cache
def episodes():
    """All recorded episodes, a tuple of `Episode`."""
    with np.load(FILE) as file:
        flat = {name: file[name] for name in file.files}
    table, metrics = flat.pop("episode"), flat.pop("metrics")
    for name in ("obstacles", "reward", "terminated", "truncated", "active", "window"):
        flat[name] = np.unpackbits(flat[name]).view(bool)
    cut = dict.fromkeys(flat, 0)

    def take(name, *shape):
        start, cut[name] = cut[name], cut[name] + int(np.prod(shape))
        return flat[name][start : cut[name]].reshape(shape)

    found = []
    for row, numbers in zip(table, metrics, strict=True):
        r = dict(zip(COLUMNS, map(int, row), strict=True))
        a, t, side = r["agents"], r["length"], 2 * r["radius"] + 1
        obstacles, start = take("obstacles", r["height"], r["width"]), take("start", 1, a, 2)
        queue, queue_length = take("queue", a, r["queue"], 2).astype(int), take("queue_length", a)
        action, move = take("action", t, a).astype(int), take("move", t, a)
        goal = np.concatenate([queue[None, :, 0], take("goal", t, a, 2)]).cumsum(0)
        active = np.concatenate([np.ones((1, a), bool), take("active", t, a)])
        window = None
        if r["window_time"] >= 0:
            window = take("window", int(active[r["window_time"]].sum()), 3, side, side)
        found.append(
            Episode(
                obstacles=obstacles,
                radius=r["radius"],
                rule=RULES[r["rule"]],
                mode=MODES[r["mode"]],
                horizon=r["horizon"],
                shape=r["shape"],
                queue=queue,
                queue_length=queue_length.astype(int),
                action=action,
                position=np.concatenate([start.astype(int), MOVES[move]]).cumsum(0),
                goal=goal,
                reward=take("reward", t, a),
                terminated=take("terminated", t, a),
                truncated=take("truncated", t),
                active=active,
                sight=take("sight", t + 1),
                window_time=r["window_time"],
                window=window,
                metrics={n: v for n, v in zip(METRICS, numbers, strict=True) if not np.isnan(v)},
            )
        )
    return tuple(found)


def groups():
    """Episodes by ``(rule, mode, shape)``: within one, only maps, horizons and queues differ."""
    found = {}
    for episode in episodes():
        found.setdefault((episode.rule, episode.mode, episode.shape), []).append(episode)
    return found
