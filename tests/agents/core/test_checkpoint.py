import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from flockax.agents.core import checkpoint
from flockax.agents.core.checkpoint import CheckpointError, Checkpoints, state_digest


@flax.struct.dataclass
class State:
    params: Any
    optimiser: Any
    key: Any
    host: Any
    name: str = flax.struct.field(pytree_node=False, default="static")


class Pair(NamedTuple):
    a: Any
    b: Any


def make_state(seed=0):
    keys = jax.random.split(jax.random.key(seed), 4)
    params = {
        "dense": {"kernel": jax.random.normal(keys[0], (3, 2)), "bias": jnp.zeros(2)},
        "half": jax.random.normal(keys[1], (5,), jnp.bfloat16),
    }
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)).init(params)
    host = {
        "f64": np.array([0.1, np.nan, -0.0, np.inf]),
        "i64": np.array(2**40 + seed),
        "flags": np.array([True, False]),
        "empty": np.zeros((0, 3), np.int8),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "scalar": np.float32(0.5),
        "count": 3 + seed,
        "rate": 0.1,
        "flag": True,
    }
    key = Pair(keys, jax.random.key(seed, impl="rbg"))
    return State(params, optimiser, key, host)


def raw(leaf):
    """The bytes of a leaf, by another way than the code under test."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(jax.random.key_impl(leaf)).encode() + np.asarray(jax.random.key_data(leaf)).data
    return np.asarray(leaf).tobytes()


def assert_same(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert type(x) is type(y)
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None)
        assert np.shape(x) == np.shape(y)
        assert raw(x) == raw(y)


def test_restores_every_bit_and_type(tmp_path):
    state = make_state()
    Checkpoints(tmp_path / "c").save(7, state, {"update": 7, "names": ["a", None], "rate": 0.1})
    restored, meta = Checkpoints(tmp_path / "c").restore(7, make_state(1))
    assert_same(restored, state)
    assert meta == {"update": 7, "names": ["a", None], "rate": 0.1, "step": 7}
    assert restored.name == "static"


def test_restores_from_shapes_alone(tmp_path):
    state = make_state().replace(host=None)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, state, {})
    restored, _ = checkpoints.restore(0, jax.eval_shape(lambda: state))
    assert_same(restored, state)


def test_restored_arrays_compile_nothing_anew(tmp_path):
    @jax.jit
    def step(x):
        traces.append(None)
        return {"x": x["x"] + 1, "key": jax.random.split(x["key"])[0]}

    traces = []
    state = step({"x": jnp.zeros(3), "key": jax.random.key(0)})
    expected = step(state)
    compiled = step._cache_size()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state, {})
    assert_same(step(checkpoints.restore(1, state)[0]), expected)
    assert len(traces) == 1
    assert step._cache_size() == compiled


def test_restored_arrays_keep_their_sharding():
    # Needs several devices, which have to be asked for before jax starts.
    script = """
import tempfile, jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec
from flockax.agents.core.checkpoint import Checkpoints
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",))
split = NamedSharding(mesh, PartitionSpec("x"))
state = {"a": jax.device_put(jnp.arange(8.0), split),
         "k": jax.device_put(jax.random.split(jax.random.key(0), 4), split)}
with tempfile.TemporaryDirectory() as folder:
    checkpoints = Checkpoints(folder)
    checkpoints.save(0, state, {})
    restored, _ = checkpoints.restore(0, jax.tree.map(jnp.zeros_like, {"a": state["a"]}) |
                                         {"k": state["k"]})
assert restored["a"].sharding == split and restored["k"].sharding == split
assert len(restored["a"].addressable_shards) == 4
assert (restored["a"] == state["a"]).all() and (restored["k"] == state["k"]).all()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_importing_leaves_orbax_out():
    script = "import sys, flockax.agents.core.checkpoint; sys.exit('orbax' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_keeps_the_newest(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.latest() is None
    for step in (0, 5, 10, 15):
        checkpoints.save(step, {"x": np.array(step)}, {"n": step})
    assert checkpoints.steps() == [10, 15]
    assert checkpoints.latest() == 15
    assert checkpoints.meta(10) == {"n": 10, "step": 10}
    assert checkpoints.restore(None, {"x": np.array(0)})[0] == {"x": 15}
    assert checkpoints.restore(12, {"x": np.array(0)})[0] == {"x": 10}
    assert sorted(os.listdir(tmp_path)) == ["10", "15"]


def test_an_earlier_step_replaces_later_ones(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        checkpoints.save(step, {"x": np.array(step)}, {})
    checkpoints.save(2, {"x": np.array(20)}, {})
    assert checkpoints.steps() == [2]
    assert checkpoints.restore(2, {"x": np.array(0)})[0] == {"x": 20}


def test_saving_the_same_again_never_takes_it_away(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.arange(9.0)}, {"n": 1})
    before = (tmp_path / "1").stat().st_ino
    checkpoints.save(1, {"x": np.arange(9.0)}, {"n": 1})
    assert (tmp_path / "1").stat().st_ino == before
    checkpoints.save(1, {"x": np.arange(9.0)}, {"n": 2})
    assert checkpoints.meta(1)["n"] == 2
    # The record alone is not enough to call it the same.
    for file in (tmp_path / "1" / "state" / "d").iterdir():
        damage(file, "halve")
    checkpoints.save(1, {"x": np.arange(9.0)}, {"n": 2})
    assert_same(checkpoints.restore(1, {"x": np.zeros(9)})[0], {"x": np.arange(9.0)})


def test_state_without_values(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, {"none": None, "empty": np.zeros((2, 0))}, {"a": 1})
    state, meta = checkpoints.restore(0, {"none": None, "empty": np.ones((2, 0))})
    assert_same(state, {"none": None, "empty": np.zeros((2, 0))})
    assert meta == {"a": 1, "step": 0}


def test_reading_only_touches_nothing(tmp_path):
    reader = Checkpoints(tmp_path / "c", read_only=True)
    assert reader.latest() is None
    with pytest.raises(CheckpointError, match="no checkpoint 1 in"):
        reader.meta(1)
    with pytest.raises(CheckpointError, match="no intact checkpoint"):
        reader.restore(None, {})
    assert not (tmp_path / "c").exists()
    Checkpoints(tmp_path / "c").save(1, {"x": np.array(1)}, {})
    going_on = tmp_path / "c" / "2.orbax-checkpoint-tmp"
    going_on.mkdir()
    assert reader.latest() == 1
    assert going_on.exists()
    with pytest.raises(CheckpointError, match="reading only"):
        reader.save(3, {"x": np.array(1)}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.replace(name="other"), None),
        (
            lambda s: s.replace(params={**s.params, "half": jnp.zeros(5)}),
            r"leaf params/half: found bfloat16\[5\], expected float32\[5\]",
        ),
        (
            lambda s: s.replace(params={**s.params, "dense": {"kernel": jnp.zeros((3, 2))}}),
            r"leaf params/dense/bias: found float32\[2\], expected nothing",
        ),
        (
            lambda s: s.replace(params={**s.params, "more": jnp.zeros(1)}),
            r"leaf params/more: found nothing, expected float32\[1\]",
        ),
        (
            lambda s: s.replace(key=s.key._replace(a=s.key.a[:3])),
            r"leaf key/a: found key<fry>\[4\], expected key<fry>\[3\]",
        ),
        (
            lambda s: s.replace(key=s.key._replace(b=jax.random.key(0))),
            r"leaf key/b: found key<rbg>\[\], expected key<fry>\[\]",
        ),
        (
            lambda s: s.replace(host={**s.host, "count": np.array(3)}),
            r"leaf host/count: found Python int\[\], expected int64\[\]",
        ),
        (
            lambda s: s.replace(host={**s.host, "empty": np.zeros((0, 4), np.int8)}),
            r"leaf host/empty: found int8\[0,3\], expected int8\[0,4\]",
        ),
    ],
)
def test_another_state_is_refused_by_leaf(tmp_path, change, message):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(4, make_state(), {})
    example = change(make_state())
    if message is None:
        checkpoints.restore(4, example)
        return
    with pytest.raises(CheckpointError, match=f"checkpoint 4 .*{message}$"):
        checkpoints.restore(4, example)


@pytest.mark.parametrize(
    ("state", "meta", "message"),
    [
        ({"a": {"b": "text"}}, {}, "leaf a/b is a str"),
        ({"a": np.array(["text"])}, {}, "leaf a is a ndarray"),
        ({"a": np.array([object()])}, {}, "leaf a is a ndarray"),
        ({"a": {"b": np.array(1)}, "a/b": np.array(1)}, {}, "two leaves have the path a/b"),
        ({"a": 2**70}, {}, "too large|too big"),
        ({"a": np.array(1)}, {"m": np.array(1)}, "not JSON serializable"),
        ({"a": np.array(1)}, {"m": float("nan")}, "not JSON compliant"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path, state, meta, message):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(0, {"a": np.array(0)}, {})
    with pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, state, meta)
    assert checkpoints.steps() == [0]


def test_keep_below_one_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="keep=0; allowed is 1 or more"):
        Checkpoints(tmp_path, keep=0)


# Damage.


def damage(path, how):
    content = path.read_bytes()
    if how == "delete":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "halve":
        path.write_bytes(content[: len(content) // 2])
    else:
        middle = len(content) // 2
        flipped = bytes([content[middle] ^ 4]) if content else b"x"
        path.write_bytes(content[:middle] + flipped + content[middle + 1 :])


@pytest.mark.parametrize("how", ["delete", "empty", "halve", "flip"])
def test_damage_to_any_file_costs_one_checkpoint_at_most(tmp_path, how):
    states = {step: {"x": np.random.default_rng(step).standard_normal(300)} for step in (1, 2)}
    for step, state in states.items():
        Checkpoints(tmp_path / "good").save(step, state, {"n": step})
    files = [p.relative_to(tmp_path) for p in (tmp_path / "good" / "2").rglob("*") if p.is_file()]
    assert len(files) > 4
    fell_back = set()
    for number, file in enumerate(files):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "good", folder)
        damage(folder / file.relative_to("good"), how)
        checkpoints = Checkpoints(folder)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            state, meta = checkpoints.restore(checkpoints.latest(), {"x": np.zeros(300)})
        assert_same(state, states[meta["step"]])
        assert meta == {"n": meta["step"], "step": meta["step"]}
        if meta["step"] == 1:
            fell_back.add(file)
        assert [str(w.message) for w in caught if "damaged" not in str(w.message)] == []
        # Whatever is left there must not be in the way of what comes next.
        checkpoints.save(2, states[2], {"n": 2})
        assert_same(Checkpoints(folder).restore(2, {"x": np.zeros(300)})[0], states[2])
        assert Checkpoints(folder).steps() == [1, 2]
    data = {file for file in files if file.parts[2:4] == ("state", "d")}
    assert data | {Path("good/2/record/metadata")} <= fell_back


def test_fallback_warns_and_says_what_it_uses(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, {"x": np.arange(step, step + 9.0)}, {})
    for file in (tmp_path / "2" / "state").rglob("*"):
        if file.is_file():
            damage(file, "halve")
    with pytest.warns(RuntimeWarning, match="checkpoint 2 is damaged.*using checkpoint 1 instead"):
        state, meta = checkpoints.restore(2, {"x": np.zeros(9)})
    assert meta["step"] == 1
    assert_same(state, {"x": np.arange(1, 10.0)})
    shutil.rmtree(tmp_path / "1" / "record")
    with pytest.raises(CheckpointError, match=r"no intact checkpoint in .*2 is damaged.*1 is dam"):
        checkpoints.restore(None, {"x": np.zeros(9)})
    assert checkpoints.latest() == 2
    shutil.rmtree(tmp_path / "2" / "record")
    # Not None, which would mean to start anew.
    with pytest.raises(CheckpointError, match=r"no intact checkpoint in .*2 is dam.*1 is dam"):
        checkpoints.latest()
    with pytest.raises(CheckpointError, match="checkpoint 2 is damaged"):
        checkpoints.meta(2)


def test_values_changed_behind_orbax_are_noticed(tmp_path):
    # A whole, readable checkpoint whose numbers are not those of the record: only the digest tells.
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, {"x": np.full(9, float(step))}, {})
    shutil.rmtree(tmp_path / "2" / "state")
    shutil.copytree(tmp_path / "1" / "state", tmp_path / "2" / "state")
    with pytest.warns(RuntimeWarning, match="its values are not what was written"):
        assert checkpoints.restore(2, {"x": np.zeros(9)})[1]["step"] == 1


def test_changed_record_is_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.zeros(9)}, {"update": 1})
    file = tmp_path / "1" / "record" / "metadata"
    file.write_text(file.read_text().replace('"update": 1', '"update": 2'))
    with pytest.raises(CheckpointError, match="its record is not what was written"):
        checkpoints.latest()
    with pytest.raises(CheckpointError, match="its record is not what was written"):
        checkpoints.restore(1, {"x": np.zeros(9)})


def test_checkpoint_under_the_name_of_another_step_is_noticed(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.zeros(9)}, {})
    (tmp_path / "1").rename(tmp_path / "2")
    with pytest.raises(CheckpointError, match="checkpoint 2 is damaged: its record"):
        checkpoints.restore(None, {"x": np.zeros(9)})


def test_all_is_on_the_disk_when_save_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(checkpoint, "sync", lambda path: synced.append(Path(path).resolve()))
    Checkpoints(tmp_path).save(1, {"x": np.zeros(9)}, {})
    assert set(synced) == {tmp_path.resolve(), *(p.resolve() for p in tmp_path.rglob("*"))}


def test_missing_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="no intact checkpoint"):
        Checkpoints(tmp_path / "nowhere").restore(None, {})
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(5, {"x": np.zeros(1)}, {})
    with pytest.raises(CheckpointError, match="up to step 4"):
        checkpoints.restore(4, {"x": np.zeros(1)})


def test_another_format_is_refused(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr(checkpoint, "_FORMAT", 99)
    checkpoints.save(5, {"x": np.zeros(1)}, {})
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="format 99; allowed is 1"):
        checkpoints.restore(5, {"x": np.zeros(1)})


# Kills.

SAVER = """
import os, sys
import numpy as np
import orbax.checkpoint
from flockax.agents.core.checkpoint import Checkpoints

for line in sys.stdin:
    step = int(line)
    child = os.fork()
    if child == 0:
        os.write(1, f"child {os.getpid()}\\n".encode())
        checkpoints = Checkpoints(sys.argv[1])
        while True:
            checkpoints.save(step, {"a": np.full(64, step), "b": np.full(3, -step)}, {"n": step})
            os.write(1, f"saved {step}\\n".encode())
            step += 1
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


def test_killed_at_random_moments_the_last_good_checkpoint_loads(tmp_path):
    folder = tmp_path / "c"
    moments = random.Random(0)
    example = {"a": np.zeros(64, int), "b": np.zeros(3, int)}
    saved, awaited, unfinished, pause = 0, 0, 0, 0.05
    command = [sys.executable, "-c", SAVER, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as helper:
        for _ in range(25):
            helper.stdin.write(f"{saved + 1}\n")
            helper.stdin.flush()
            child = int(helper.stdout.readline().removeprefix("child "))
            for _ in range(moments.randrange(3)):
                started = time.perf_counter()
                saved = int(helper.stdout.readline().removeprefix("saved "))
                pause, awaited = time.perf_counter() - started, awaited + 1
            time.sleep(moments.uniform(0.0, 1.2 * pause))
            os.kill(child, signal.SIGKILL)
            while (line := helper.stdout.readline()) != "dead\n":
                saved = int(line.removeprefix("saved "))

            unfinished += any(folder.glob("*tmp*"))
            checkpoints = Checkpoints(folder)
            newest = checkpoints.latest()
            if newest is None:
                assert saved == 0
                continue
            # A save may have ended without the time to tell.
            assert newest in (saved, saved + 1)
            state, meta = checkpoints.restore(newest, example)
            assert meta == {"n": newest, "step": newest}
            assert_same(state, {"a": np.full(64, newest), "b": np.full(3, -newest)})
            assert not list(folder.glob("*tmp*"))
            saved = newest
        helper.stdin.close()
    assert saved >= awaited > 15
    assert unfinished >= 5
    # What was killed before it could remove older ones left them to the next.
    checkpoints.save(saved + 1, example, {})
    assert sorted(os.listdir(folder)) == sorted([str(saved), str(saved + 1)])


# Full disks.


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 1 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "flockax-test", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk takes root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("noticed", ["before", "meanwhile"])
def test_a_really_full_disk(small_disk, monkeypatch, noticed):
    small = {"x": np.random.default_rng(0).standard_normal(20_000)}
    large = {"x": np.random.default_rng(0).standard_normal(200_000)}
    checkpoints = Checkpoints(small_disk / "c")
    checkpoints.save(1, small, {})
    if noticed == "meanwhile":
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 40))
    else:
        monkeypatch.setattr(checkpoints._manager, "save", pytest.fail)
    with pytest.raises(CheckpointError, match=r"^disk full: checkpoint 2 .*intact$") as caught:
        checkpoints.save(2, large, {})
    assert "\n" not in str(caught.value)
    assert os.listdir(small_disk / "c") == ["1"]
    assert_same(Checkpoints(small_disk / "c").restore(None, small)[0], small)
    # With room again it goes on.
    monkeypatch.undo()
    checkpoints.save(2, small, {})
    assert_same(Checkpoints(small_disk / "c").restore(2, small)[0], small)


def refuse(kind):
    text = "RESOURCE_EXHAUSTED: Failed to write 327989 bytes to file 14: No space left on device"
    if kind == "plain":
        raise OSError(errno.ENOSPC, "no room")
    if kind == "quota":
        raise OSError(errno.EDQUOT, "no room")
    if kind == "text":
        raise ValueError(f"{text} [os_error_code='28']\n and pages more")
    try:
        raise OSError(errno.ENOSPC, "no room")
    except OSError as error:
        raise RuntimeError("could not commit") from error


@pytest.mark.parametrize("kind", ["plain", "quota", "text", "wrapped"])
def test_full_disk_as_libraries_report_it(tmp_path, monkeypatch, kind):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.ones(3)}, {})
    monkeypatch.setattr(checkpoints._manager, "save", lambda *_, **__: refuse(kind))
    with pytest.raises(CheckpointError, match=r"^disk full: checkpoint 2 .*intact$"):
        checkpoints.save(2, {"x": np.ones(3)}, {})
    assert_same(Checkpoints(tmp_path).restore(None, {"x": np.zeros(3)})[0], {"x": np.ones(3)})


def test_other_failures_are_told_in_a_line(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.ones(3)}, {})

    def fail(*_, **__):
        raise ValueError("first " + "x" * 1000 + "\nsecond")

    monkeypatch.setattr(checkpoints._manager, "save", fail)
    with pytest.raises(CheckpointError, match=r"cannot write checkpoint 2 .*first x") as caught:
        checkpoints.save(2, {"x": np.ones(3)}, {})
    assert len(str(caught.value)) < 500 and "\n" not in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write checkpoint 0"):
        Checkpoints(tmp_path / "file").save(0, {"x": np.ones(3)}, {})


def test_interrupted_save_leaves_nothing(tmp_path, monkeypatch):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, {"x": np.ones(3)}, {})

    def interrupt(*_, **__):
        (tmp_path / "2.orbax-checkpoint-tmp" / "state").mkdir(parents=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints._manager, "save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(2, {"x": np.ones(3)}, {})
    assert os.listdir(tmp_path) == ["1"]
    checkpoints.save(2, {"x": np.ones(3)}, {})
    assert checkpoints.steps() == [1, 2]


# Digests.


def test_digest_changes_with_every_bit():
    state = {
        "f": np.array([1.5, 0.0], np.float32),
        "i": np.array([[1, 2]], np.int16),
        "b": np.array([7], np.uint8),
    }
    digests = {state_digest(state)}
    count = 1
    for name, array in state.items():
        for byte in range(array.nbytes):
            for bit in range(8):
                changed = array.copy()
                changed.reshape(-1).view(np.uint8)[byte] ^= 1 << bit
                digests.add(state_digest({**state, name: changed}))
                count += 1
    assert len(digests) == count


def test_digest_changes_with_whatever_a_leaf_is():
    key = jax.random.key(0)
    states = [
        {"a": np.zeros(6, np.int32)},
        {"a": np.zeros(6, np.uint32)},
        {"a": np.zeros(3, np.int64)},
        {"a": np.zeros((2, 3), np.int32)},
        {"a": np.zeros((3, 2), np.int32)},
        {"b": np.zeros(6, np.int32)},
        {"a": {"a": np.zeros(6, np.int32)}},
        {"a": np.zeros(3, np.int32), "b": np.zeros(3, np.int32)},
        {"a": np.ones(3, np.int32), "b": np.zeros(3, np.int32)},
        {"a": np.zeros(3, np.int32), "b": np.ones(3, np.int32)},
        {"a": np.zeros(6, bool)},
        {"a": np.array(0.0)},
        {"a": np.array(-0.0)},
        {"a": 0.0},
        {"a": 0},
        {"a": False},
        {"a": True},
        {"a": key},
        {"a": jax.random.key(1)},
        {"a": jax.random.split(key)},
        {"a": jax.random.key_data(key)},
        {"a": jax.random.key(0, impl="rbg")},
        {"a": jax.random.key(0, impl="unsafe_rbg")},
        {"a": np.zeros((0,), np.float32)},
        {"a": np.zeros((0, 1), np.float32)},
        {},
    ]
    digests = [state_digest(state) for state in states]
    assert len(set(digests)) == len(states)
    assert all(len(text) == 64 and int(text, 16) >= 0 for text in digests)


def test_digest_ignores_containers_and_places():
    @flax.struct.dataclass
    class Backwards:
        b: Any
        a: Any

    values = (np.arange(3.0, dtype=np.float32), np.array([True]))
    expected = state_digest({"a": values[0], "b": values[1]})
    assert state_digest(Pair(*values)) == expected
    assert state_digest(Backwards(a=values[0], b=values[1])) == expected
    assert state_digest(Pair(*map(jnp.asarray, values))) == expected
    spread = np.repeat(values[0], 2)[::2]
    assert state_digest(Pair(spread, values[1])) == expected
    assert state_digest([values[0]]) == state_digest((values[0],))


def test_digest_is_the_same_in_another_process(tmp_path):
    state = {"w": np.arange(4.0), "n": 3, "key": jax.random.key(5), "x": {"y": np.array([True])}}
    script = """
import jax, numpy as np
from flockax.agents.core.checkpoint import state_digest
state = {"x": {"y": np.array([True])}, "w": np.arange(4.0), "n": 3, "key": jax.random.key(5)}
print(state_digest(state))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split()[-1] == state_digest(state)
    # And the same for ever: digests of published runs have to stay comparable.
    assert state_digest(state) == "0c6d1cb0b883db05f5eb37b2f39ff3bc9feb9511526fc9d877ae3e908144034c"


def test_a_list_that_changes_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    """A run that goes on takes old checkpoints away; orbax then misses what it has just listed."""
    state = make_state()
    Checkpoints(tmp_path / "c").save(3, state, {})
    reader = Checkpoints(tmp_path / "c", read_only=True)
    manager, calls = reader._manager, []
    listed = manager.all_steps

    def vanishing(read):
        calls.append(read)
        if len(calls) < 3:
            raise FileNotFoundError(tmp_path / "c" / "2")
        return listed(read=read)

    monkeypatch.setattr(manager, "all_steps", vanishing)
    assert reader.steps() == [3] and len(calls) == 3
    monkeypatch.setattr(checkpoint, "_ATTEMPTS", 2)
    calls.clear()
    with pytest.raises(CheckpointError, match="changes faster than it can be read"):
        reader.steps()
