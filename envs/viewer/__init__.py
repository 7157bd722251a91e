"""Recordings of episodes, and what is drawn from them: PNG, GIF, MP4 and a self-contained page.

An environment describes its look once (`Scene`) and says where things are in a state (`LayerFrame`).
`record` plays episodes, `save_replay` draws them:

    recording = record(env, policy_act, seed=0, episodes=4)
    save_replay(recording, "replay.html")

Pillow and imageio are imported only when something is drawn.
"""

from flockax.envs.viewer.configuration import current_versions
from flockax.envs.viewer.recording import Recording, load, record, resimulate
from flockax.envs.viewer.render import save_replay, to_gif, to_html, to_mp4, to_png
from flockax.envs.viewer.scene import Layer, LayerFrame, Palette, Scene
from flockax.envs.viewer.storage import RecordingError

__all__ = [
    "Layer",
    "LayerFrame",
    "Palette",
    "Recording",
    "RecordingError",
    "Scene",
    "current_versions",
    "load",
    "record",
    "resimulate",
    "save_replay",
    "to_gif",
    "to_html",
    "to_mp4",
    "to_png",
]
