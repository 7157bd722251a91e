"""Two small maps and instances on them, as files of the POGEMA benchmark have them."""

MAPS = """
"hall": |-
  .....
  .....
"door": |-
  ..#..
  .....
  ..#..
"""
SCENARIOS = [
    {
        "map_name": "hall",
        "seed": 0,
        "agents_xy": [[0, 0], [1, 0], [0, 4]],
        "targets_xy": [[0, 4], [1, 4], [0, 0]],
    },
    {
        "map_name": "door",
        "seed": 1,
        "agents_xy": [[0, 0], [2, 4], [1, 0]],
        "targets_xy": [[2, 3], [0, 1], [1, 4]],
    },
]
