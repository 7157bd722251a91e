"""PIBT as its paper gives it: recursive, one environment, plain Python."""

from itertools import permutations

MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
SHUFFLES = list(permutations(range(5)))


def preferences(position, obstacles, distance, shuffle):
    """Moves to free cells, the nearest to the goal first; equal ones as the permutation has it."""
    height, width = len(obstacles), len(obstacles[0])
    options = []
    for move, (row, column) in enumerate(MOVES):
        there = position[0] + row, position[1] + column
        if 0 <= there[0] < height and 0 <= there[1] < width and not obstacles[there[0]][there[1]]:
            options.append((distance[there[0]][there[1]], SHUFFLES[shuffle][move], move))
    return [move for _, _, move in sorted(options)]


def pibt(positions, candidates, priorities):
    """Moves of all agents.

    Args:
        positions: (row, column) of each agent.
        candidates: moves of each agent in the order of preference.
        priorities: a number for each agent; the highest is first, of equal ones the first agent.
    """
    now = {position: agent for agent, position in enumerate(positions)}
    chosen, target, taken = {}, {}, set()

    def plan(agent):
        for move in candidates[agent]:
            here = positions[agent]
            there = here[0] + MOVES[move][0], here[1] + MOVES[move][1]
            if there in taken:
                continue
            other = now.get(there)
            if other is not None and target.get(other) == here:
                continue
            chosen[agent], target[agent] = move, there
            taken.add(there)
            if other is not None and other not in target and not plan(other):
                continue
            return True
        chosen[agent], target[agent] = 0, positions[agent]
        taken.add(positions[agent])
        return False

    for agent in sorted(range(len(positions)), key=lambda agent: -priorities[agent]):
        if agent not in target:
            plan(agent)
    return [chosen[agent] for agent in range(len(positions))]


def conflicts(before, after):
    """How many agents share a cell and how many swapped."""
    shared = len(after) - len(set(after))
    places = {position: agent for agent, position in enumerate(before)}
    swaps = 0
    for agent, position in enumerate(after):
        other = places.get(position)
        swaps += other is not None and other != agent and after[other] == before[agent]
    return shared, swaps
