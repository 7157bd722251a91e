"""Recording, re-simulating, saving and loading."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flockax.envs import make, registered
from flockax.envs.viewer import (
    LayerFrame,
    Recording,
    RecordingError,
    Scene,
    current_versions,
    load,
    record,
    resimulate,
)


def assert_same(one, other):
    """Equal trees of arrays, to the bit, NaN included."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(other)
    assert structure == other_structure
    for a, b in zip(leaves, others, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


def arrays_of(recording):
    names = ("params", "lengths", "terminated", "actions", "rewards", "metrics", "frames")
    return {name: getattr(recording, name) for name in names}


def random_policy(env):
    def act(key, carry, observation, state, params, reset):
        return env.action_spec.sample(key, observation.action_mask), carry

    return act


def test_shapes(drift_recording):
    recording = drift_recording
    assert recording.num_episodes == 2
    assert recording.lengths.tolist() == [6, 6]
    assert not recording.terminated.any()
    assert recording.rewards.shape == recording.actions.shape == (12, 3)
    assert recording.metrics["count"].tolist() == 2 * [0, 1, 2, 3, 4, 5]
    assert recording.frames["predators"].position.shape == (14, 2, 2)
    assert recording.groups == (("predators", 0, 2), ("prey", 2, 3))
    assert recording.steps_of(1) == slice(6, 12)
    assert recording.frames_of(1) == slice(7, 14)


def test_plays_as_the_environment_does(drift, make_recording):
    """The recording agrees with a plain loop over reset and step."""
    env = drift()
    params = env.make_params(horizon=4)
    recording = make_recording(episodes=2, seed=5, horizon=4)
    for episode in range(2):
        env_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(5), episode))
        _, state = env.reset(jax.random.fold_in(env_key, 0), params)
        states, rewards = [state], []
        for t, action in enumerate(recording.actions[recording.steps_of(episode)]):
            key = jax.random.fold_in(env_key, t + 1)
            _, state, reward, *_ = env.step(key, state, jnp.asarray(action), params)
            states.append(state)
            rewards.append(reward)
        frames = [env.frame(state, params)["prey"] for state in states]
        recorded = recording.frames["prey"].position[recording.frames_of(episode)]
        np.testing.assert_allclose(recorded, [f.position for f in frames], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(recording.rewards[recording.steps_of(episode)], rewards)


def test_stops_at_termination(make_recording):
    recording = make_recording(goal=-9.0)
    assert recording.lengths.tolist() == [1, 1]
    assert recording.terminated.all()
    assert recording.frames["prey"].position.shape[0] == 4


def test_episodes_and_seeds_differ(make_recording):
    one, same, other = (make_recording(seed=seed) for seed in (0, 0, 1))
    assert_same(arrays_of(one), arrays_of(same))
    start = one.frames["predators"].position
    assert not np.array_equal(start[0], start[7])
    assert not np.array_equal(start[0], other.frames["predators"].position[0])
    assert not np.array_equal(one.actions[:6], one.actions[6:])


def test_policy_sees_state_reset_and_carry(drift):
    """The action spells out what the policy was given."""
    env = drift()

    def act(key, carry, observation, state, params, reset):
        carry = jnp.where(reset, 1, carry + 1)
        seen = jnp.stack([carry, state.time, params.horizon])
        return jnp.clip(seen, 0, 4), carry

    recording = record(env, act, 0, 2, env.make_params(horizon=3), carry=jnp.asarray(100))
    assert recording.actions.tolist() == 2 * [[1, 0, 3], [2, 1, 3], [3, 2, 3]]


@pytest.mark.parametrize(("field", "value"), [("seed", -1), ("seed", 1.5), ("episodes", 0)])
def test_record_refuses(drift, random_act, field, value):
    with pytest.raises(ValueError, match=f"{field}={value}"):
        record(drift(), random_act, **{"seed": 0, "episodes": 1, field: value})


def test_fields_that_json_cannot_hold_are_refused(drift, random_act):
    env = dataclasses.replace(drift(), fault=b"none")
    with pytest.raises(ValueError, match="field fault"):
        record(env, random_act, 0, 1, carry=jnp.zeros((), int))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": ("ghosts",)}, "group 'ghosts'"),
        ({"readouts": ("ghost",)}, "readout 'ghost'"),
        ({"layers": ()}, None),
    ],
)
def test_scene_must_fit_the_environment(drift_recording, changes, message):
    scene = dataclasses.replace(drift_recording.scene, **changes)
    if message is None:
        assert dataclasses.replace(drift_recording, scene=scene).scene.layers == ()
    else:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(drift_recording, scene=scene)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("rewards", np.zeros((11, 3)), "rewards has shape"),
        ("rewards", np.full((12, 3), "x"), "does not hold numbers"),
        ("actions", np.zeros((12, 2), int), "actions have shape"),
        ("lengths", np.array([12, 0], np.int32), "lengths"),
        ("terminated", np.zeros(1, bool), "terminated has shape"),
        ("metrics", {"spread": np.zeros(3)}, "metric spread"),
        ("frames", {}, "layer 'obstacles'"),
    ],
)
def test_parts_that_do_not_fit_are_refused(drift_recording, field, value, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(drift_recording, **{field: value})


@pytest.mark.parametrize("field", ["position", "heading", "visible", "highlight"])
def test_frames_that_do_not_fit_are_refused(drift_recording, field):
    frame = drift_recording.frames["prey"].replace(**{field: np.zeros((14, 9))})
    with pytest.raises(ValueError, match=f"'prey': {field}"):
        dataclasses.replace(drift_recording, frames={**drift_recording.frames, "prey": frame})


def test_resimulates_to_the_same_bits(drift, drift_recording):
    again = resimulate(drift_recording, drift())
    assert_same(again.frames, drift_recording.frames)
    assert_same(again.rewards, drift_recording.rewards)
    assert again.states.time.tolist() == 2 * [0, 1, 2, 3, 4, 5, 6]
    assert_same(again.states.obstacle, drift_recording.frames["obstacles"].position)
    assert again.states.key.dtype == np.uint32


def test_resimulation_uses_the_recorded_actions_and_seed(drift, drift_recording):
    frames = drift_recording.frames["prey"].position
    for change in ({"actions": (drift_recording.actions + 1) % 5}, {"seed": 1}):
        again = resimulate(dataclasses.replace(drift_recording, **change), drift())
        assert not np.array_equal(again.frames["prey"].position, frames)


def test_resimulation_refuses_other_parameters(drift_recording):
    with pytest.raises(ValueError, match="weights"):
        resimulate(drift_recording, make("tag"))
    with pytest.raises(ValueError, match="Drift"):
        resimulate(drift_recording)


def test_resimulates_in_another_process(tmp_path):
    """A saved `tag` recording gives the same bits in a fresh process, from the file alone."""
    env = make("tag", num_predators=2, num_obstacles=1, actions="continuous")
    recording = record(env, random_policy(env), 3, 2, env.make_params(horizon=12))
    assert recording.env_id == "tag"
    recording.save(tmp_path / "tag.npz")
    script = """
        import sys
        import jax
        from flockax.envs.viewer import current_versions, load, resimulate
        recording = load(sys.argv[1])
        assert recording.versions == current_versions()
        again = resimulate(recording)
        for a, b in zip(jax.tree.leaves(again.frames), jax.tree.leaves(recording.frames), strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
        assert again.rewards.tobytes() == recording.rewards.tobytes()
        assert again.states.time.tolist() == 2 * list(range(13))
    """
    environment = {**os.environ, "JAX_ENABLE_X64": str(int(jax.config.jax_enable_x64))}
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "tag.npz")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stderr


def test_versions_name_what_decides():
    assert set(current_versions()) == {"jax", "flockax", "device", "x64"}
    assert current_versions()["jax"] == jax.__version__


@pytest.mark.parametrize("entry", registered(), ids=lambda entry: entry.id)
def test_every_environment_can_be_recorded(entry, tmp_path):
    env = make(entry.id)
    params = env.default_params.replace(horizon=jnp.asarray(2, env.default_params.horizon.dtype))
    recording = record(env, random_policy(env), 0, 1, params)
    assert recording.env_id == entry.id
    assert_same(resimulate(recording).frames, recording.frames)
    recording.save(tmp_path / "a.npz")
    assert_same(arrays_of(load(tmp_path / "a.npz")), arrays_of(recording))


def test_save_and_load(drift_recording, tmp_path):
    path = tmp_path / "new" / "recording.npz"
    drift_recording.save(path)
    again = Recording.load(path)
    assert_same(arrays_of(again), arrays_of(drift_recording))
    for name in ("env_id", "fields", "seed", "versions", "groups"):
        assert getattr(again, name) == getattr(drift_recording, name)
    assert again.scene.to_dict()["layers"][0] == drift_recording.scene.to_dict()["layers"][0]
    assert again.fields["sizes"] == (0.1, 0.2)
    assert os.listdir(path.parent) == ["recording.npz"]


def test_a_map_and_strange_names_survive(drift_recording, tmp_path):
    scene = dataclasses.replace(
        drift_recording.scene, cells=np.eye(3, 4, dtype=int), readouts=("../x",)
    )
    metrics = {"../x": drift_recording.metrics["spread"]}
    recording = dataclasses.replace(drift_recording, scene=scene, metrics=metrics)
    recording.save(tmp_path / "map.npz")
    again = load(tmp_path / "map.npz")
    assert again.scene.cells.tolist() == np.eye(3, 4, dtype=int).tolist()
    assert_same(again.metrics, metrics)


def test_no_pickle_is_written(drift_recording, tmp_path):
    drift_recording.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype.kind in "biuf" for name in archive.files)


def test_a_failed_save_leaves_the_old_file(drift_recording, tmp_path, monkeypatch):
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        drift_recording.save(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.npz"]


def write(path, recording, change):
    """Saves a recording after `change(arrays)`."""
    recording.save(path)
    with np.load(path) as archive:
        arrays = dict(archive)
    change(arrays)
    np.savez(path, **arrays)


def set_header(**changes):
    def change(arrays):
        header = json.loads(arrays["header"].tobytes()) | changes
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("header"), "lacks 'header'"),
        (lambda arrays: arrays.pop("rewards"), "lacks 'rewards'"),
        (lambda arrays: arrays.pop("frames/1/position"), "lacks 'frames/1/position'"),
        (lambda arrays: arrays.update(rewards=arrays["rewards"][:-1]), "rewards has shape"),
        (lambda arrays: arrays.update(lengths=np.zeros(2, int)), "lengths"),
        (lambda arrays: arrays.update(header=np.zeros(3, np.uint8)), "is not a recording"),
        (lambda arrays: arrays.update(rewards=np.array([{}])), "is not a recording"),
        (set_header(format="other"), "format is 'other'"),
        (set_header(version=99), "version 99"),
        (set_header(groups=3), "is not a recording"),
        (set_header(scene={"bounds": [0, 1, 0, 1], "layers": [{"name": 1}]}), "is not a recording"),
    ],
)
def test_malformed_files_are_refused(drift_recording, tmp_path, change, message):
    path = tmp_path / "bad.npz"
    write(path, drift_recording, change)
    with pytest.raises(RecordingError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 no archive", b"\x93NUMPY\x01\x00"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(RecordingError, match="is not a recording"):
        load(tmp_path / "bad.npz")


def test_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        load(tmp_path / "nothing.npz")


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_never_surprise(drift_recording, tmp_path, data):
    """A file with flipped bytes or a lost tail loads to a valid recording or is refused."""
    path = tmp_path / "damaged.npz"
    drift_recording.save(path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        assert isinstance(load(path), Recording)
    except RecordingError as error:
        assert "damaged.npz" in str(error)


def test_scene_of_another_environment_is_refused(drift, random_act):
    """A frame without a layer of the scene is named when recording, not when drawing."""

    class Forgetful(drift):
        def frame(self, state, params=None):
            return {"obstacles": LayerFrame(state.obstacle)}

        def scene(self, params=None):
            return Scene((-1, 1, -1, 1), super().scene(params).layers)

    with pytest.raises(ValueError, match="layer 'predators'"):
        record(Forgetful(), random_act, 0, 1, carry=jnp.zeros((), int))
