import dataclasses
import enum
import errno
import json
import math
import os
import signal
import subprocess
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flockax.agents.core import files, metricslog, runlog
from flockax.agents.core.files import write_atomically
from flockax.agents.core.runlog import (
    MetricsLog,
    RunError,
    RunFolder,
    TensorBoardWriter,
    WandbWriter,
    read_metrics,
    to_json,
    versions,
)


def snapshot(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file() and p.name != ".lock"}


# The folder.


def test_fresh_folders_count_up(tmp_path):
    names = []
    for _ in range(3):
        with RunFolder.create(None, "ippo", "tag", root=tmp_path / "runs") as run:
            names.append(run.path.name)
    assert names == ["ippo-tag-1", "ippo-tag-2", "ippo-tag-3"]
    (tmp_path / "runs" / "ippo-tag-2" / ".lock").unlink()
    (tmp_path / "runs" / "ippo-tag-2").rmdir()
    with RunFolder.create(None, "ippo", "tag", root=tmp_path / "runs") as run:
        assert run.path.name == "ippo-tag-2"
    with RunFolder.create(None, "ippo", "spread", root=tmp_path / "runs") as run:
        assert run.path.name == "ippo-spread-1"


def test_fresh_folders_are_never_shared():
    # The folder is made by the call that finds it free: there is no moment in between.
    taken = {"runs/a-b-1", "runs/a-b-2"}

    class Contested(type(Path())):
        def mkdir(self, *_, **__):
            if str(self) in taken:
                raise FileExistsError
            taken.add(str(self))

        def exists(self, **_):
            return False

    assert str(runlog._fresh(Contested("runs"), "a-b")) == "runs/a-b-3"


def test_out_is_made_with_its_parents(tmp_path):
    with RunFolder.create(tmp_path / "a" / "b", "ippo", "tag") as run:
        assert run.path == tmp_path / "a" / "b"
        assert run.path.is_dir()
        assert not run.has_config
        assert run.checkpoints == run.path / "checkpoints"
        assert run.metrics == run.path / "metrics.jsonl"


def test_a_run_is_not_overwritten(tmp_path):
    with RunFolder.create(tmp_path / "run", "ippo", "tag") as run:
        run.write_config({"a": 1})
    before = snapshot(tmp_path / "run")
    with pytest.raises(RunError, match=r"holds a run; use --resume to go on .* another --out$"):
        RunFolder.create(tmp_path / "run", "ippo", "tag")
    assert snapshot(tmp_path / "run") == before
    with RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True) as run:
        assert run.has_config
        assert run.read_config() == {"a": 1}


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_no_run_is_not_touched(tmp_path, resume):
    (tmp_path / "thesis.tex").write_text("years")
    times = (tmp_path.stat().st_mtime_ns, (tmp_path / "thesis.tex").stat().st_mtime_ns)
    with pytest.raises(RunError, match="is not empty and not the folder of a run; use another"):
        RunFolder.create(tmp_path, "ippo", "tag", resume=resume)
    assert os.listdir(tmp_path) == ["thesis.tex"]
    assert times == (tmp_path.stat().st_mtime_ns, (tmp_path / "thesis.tex").stat().st_mtime_ns)


def test_a_run_killed_before_it_had_a_configuration_is_none(tmp_path):
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / ".config.json.1.tmp").write_text("{")
    with RunFolder.create(tmp_path, "ippo", "tag") as run:
        run.write_config({"a": 1})
    assert RunFolder(tmp_path).read_config() == {"a": 1}


def test_resume_without_a_run_starts_one(tmp_path):
    with RunFolder.create(tmp_path / "new", "ippo", "tag", resume=True) as run:
        assert not run.has_config
    with pytest.raises(RunError, match="resume=True without out"):
        RunFolder.create(None, "ippo", "tag", resume=True)


def test_places_that_cannot_hold_a_run(tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunError, match="cannot make a folder in"):
            RunFolder.create(out, "ippo", "tag")
    with pytest.raises(RunError, match="is not the folder of a run: it has no config"):
        RunFolder(tmp_path)


HOLDER = """
import sys, time
from pathlib import Path
from flockax.agents.core.runlog import RunFolder
run = RunFolder.create(Path(sys.argv[1]), "ippo", "tag", resume=True)
run.write_config({"a": 1})
print("locked", flush=True)
time.sleep(60)
"""


def test_second_writer_is_refused_until_the_first_is_gone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("999999999999\n")
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(RunError, match=rf"written by another process \(pid {holder.pid}\)"):
                RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True)
            # Looking is allowed.
            assert RunFolder(tmp_path / "run").read_config() == {"a": 1}
        finally:
            holder.send_signal(signal.SIGKILL)
    with RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True) as run:
        with pytest.raises(RunError, match=f"pid {os.getpid()}"):
            RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True)
        run.write_config({"a": 2})
    RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True).close()


def test_lock_is_not_left_to_started_programs(tmp_path):
    with RunFolder.create(tmp_path / "run", "ippo", "tag") as run:
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
        run.write_config({})
    try:
        RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True).close()
    finally:
        child.kill()
        child.wait()


def test_a_run_that_came_before_the_lock_was_ours_is_kept(tmp_path, monkeypatch):
    real = runlog._lock

    def slow(path):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runlog, "_lock", real)
            with RunFolder.create(tmp_path / "run", "other", "tag") as other:
                other.write_config({"a": 1})
        return real(path)

    monkeypatch.setattr(runlog, "_lock", slow)
    with pytest.raises(RunError, match="holds a run"):
        RunFolder.create(tmp_path / "run", "ippo", "tag")
    monkeypatch.undo()
    with RunFolder.create(tmp_path / "run", "ippo", "tag", resume=True) as run:
        assert run.read_config() == {"a": 1}


# Configuration and summary.


@dataclasses.dataclass(frozen=True)
class Config:
    lr: float
    layers: tuple[int, ...]
    out: Path | None = None


def test_config_comes_back(tmp_path):
    config = {
        "ippo": Config(lr=0.1, layers=(64, 64), out=Path("a/b")),
        "clip": math.inf,
        "x": np.float32(0.5),
        "text": "ä",
    }
    with RunFolder.create(tmp_path, "ippo", "tag") as run:
        run.write_config(config)
        assert run.read_config() == {
            "ippo": {"lr": 0.1, "layers": [64, 64], "out": "a/b"},
            "clip": "inf",
            "x": 0.5,
            "text": "ä",
        }
        run.check_config(config)


def test_every_differing_field_is_told(tmp_path):
    old = {"ippo": {"lr": 0.1, "layers": [64], "steps": 5}, "env": "tag", "gone": None, "same": 1}
    new = {"ippo": {"lr": 0.2, "layers": [64, 64], "steps": 9}, "env": "tag", "same": 1, "new": {}}
    with RunFolder.create(tmp_path / "run", "ippo", "tag") as run:
        run.write_config(old)
        with pytest.raises(RunError) as caught:
            run.check_config(new, may_differ=["ippo.steps"])
        assert str(caught.value).splitlines() == [
            f"{tmp_path / 'run'} is a run with another configuration:",
            "  gone: None in the run, nothing now",
            "  ippo.layers: [64] in the run, [64, 64] now",
            "  ippo.lr: 0.1 in the run, 0.2 now",
            "  new: nothing in the run, {} now",
        ]
        run.check_config(new, may_differ=["ippo", "gone", "new"])
        with pytest.raises(RunError, match=r"ippo\.lr"):
            run.check_config(new, may_differ=["ipp", "ippo.l", "gone", "new"])


def test_damaged_json_is_told(tmp_path):
    for content in (b'{"a": ', b"[1]", b"\xff"):
        (tmp_path / "config.json").write_bytes(content)
        with pytest.raises(RunError, match=r"config\.json is damaged; allowed is a JSON object"):
            RunFolder(tmp_path).read_config()


def test_summary(tmp_path):
    with RunFolder.create(tmp_path, "ippo", "tag") as run:
        with pytest.raises(RunError, match=r"cannot read .*summary\.json: No such file"):
            run.read_summary()
        run.write_summary({"return_mean": np.float32(1.5), "per_seed": jnp.array([1.0, jnp.nan])})
        assert run.read_summary() == {"return_mean": 1.5, "per_seed": [1.0, None]}


def test_writing_is_atomic(tmp_path, monkeypatch):
    write_atomically(tmp_path / "file", b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(files.os, name, fail)
            with pytest.raises(OSError, match="No space left"):
                write_atomically(tmp_path / "file", b"new")
        assert (tmp_path / "file").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["file"]
    with RunFolder.create(tmp_path / "run", "ippo", "tag") as run, monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", fail)
        with pytest.raises(RunError, match=r"^cannot write .*config\.json: disk full$"):
            run.write_config({})
        with pytest.raises(RunError, match=r"^cannot write .*summary\.json: disk full$"):
            run.write_summary({})


def test_new_content_is_on_the_disk_before_it_replaces_the_old(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(files.os, name, lambda *a, n=name, r=real: (order.append(n), r(*a))[1])
    write_atomically(tmp_path / "file", b"new")
    assert order == ["fsync", "replace", "fsync"]


# Metrics.


def test_metrics_come_back(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    records = [
        {"update": 1, "return_mean": [1.5, None], "loss": {"actor": [0.1, 0.2]}},
        {"update": 2, "return_mean": None},
    ]
    log.append({"update": 1, "return_mean": np.array([1.5, np.nan]), "loss": {"actor": (0.1, 0.2)}})
    assert read_metrics(tmp_path / "metrics.jsonl") == records[:1]
    log.append(records[1])
    log.sync()
    log.close()
    assert read_metrics(tmp_path / "metrics.jsonl") == records
    again = MetricsLog(tmp_path / "metrics.jsonl")
    again.append({"update": 3})
    assert read_metrics(tmp_path / "metrics.jsonl") == [*records, {"update": 3}]
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


TORN = [b"", b"{", b'{"update": 3', b'{"update":3}', b'"\xc3', b"\0\0\0\0", b"{}\0"]


@pytest.mark.parametrize("torn", TORN)
def test_torn_last_line(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    good = b'{"update": 1}\n{"update": 2}\n'
    path.write_bytes(good + torn)
    assert read_metrics(path) == [{"update": 1}, {"update": 2}]
    log = MetricsLog(path)
    assert path.read_bytes() == good
    log.append({"update": 3})
    assert [record["update"] for record in read_metrics(path)] == [1, 2, 3]
    path.write_bytes(torn)
    assert read_metrics(path) == []
    MetricsLog(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("bad", [b"{\n", b"[1]\n", b"\n", b"\0\0\n", b"\xff\n"])
def test_bad_line_before_the_last_is_told(tmp_path, bad):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"update": 1}\n' + bad)
    assert read_metrics(path) == [{"update": 1}]
    path.write_bytes(b'{"update": 1}\n' + bad + b'{"update": 2}\n')
    with pytest.raises(RunError, match="line 2 is damaged; allowed is a JSON object"):
        read_metrics(path)


def test_missing_metrics_are_told(tmp_path):
    with pytest.raises(RunError, match=r"cannot read .*metrics\.jsonl: No such file"):
        read_metrics(tmp_path / "metrics.jsonl")
    with pytest.raises(RunError, match="cannot write"):
        MetricsLog(tmp_path / "nowhere" / "metrics.jsonl")


@pytest.mark.parametrize(
    ("step", "field", "kept"),
    [(20, "env_steps", [1, 2]), (19, "env_steps", [1]), (2, "update", [1, 2]), (0, "update", [])],
)
def test_cut_to_a_checkpoint(tmp_path, step, field, kept):
    path = tmp_path / "metrics.jsonl"
    log = MetricsLog(path)
    log.append({"note": "no steps"})
    for update in (1, 2, 3):
        log.append({"update": update, "env_steps": 10 * update, "x": 0.1 + update})
    log.truncate_to(step, field)
    log.append({"update": 9})
    note, *records, last = read_metrics(path)
    assert note == {"note": "no steps"}
    assert last == {"update": 9}
    assert records == [{"update": u, "env_steps": 10 * u, "x": 0.1 + u} for u in kept]


def test_cutting_is_atomic(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"update": 1})
    log.append({"update": 2})
    before = log.path.read_bytes()

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(metricslog, "write_atomically", fail)
        with pytest.raises(RunError, match="disk full"):
            log.truncate_to(1, "update")
    assert log.path.read_bytes() == before
    log.append({"update": 3})
    assert len(read_metrics(log.path)) == 3


def test_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append({"update": 1})
    before = log.path.read_bytes()
    write = os.write
    calls = []

    def short(descriptor, data):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr(metricslog.os, "write", short)
        with pytest.raises(RunError, match=r"^cannot write .*metrics\.jsonl: disk full$"):
            log.append({"update": 2})
    assert len(calls) == 2
    assert log.path.read_bytes() == before
    log.append({"update": 3})
    assert read_metrics(log.path) == [{"update": 1}, {"update": 3}]


def test_slow_writes_are_finished(tmp_path, monkeypatch):
    write = os.write
    log = MetricsLog(tmp_path / "metrics.jsonl")
    monkeypatch.setattr(metricslog.os, "write", lambda fd, data: write(fd, data[:3]))
    log.append({"update": 123456})
    assert read_metrics(log.path) == [{"update": 123456}]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_really_full_device():
    with pytest.raises(RunError, match="disk full"):
        MetricsLog("/dev/full").append({"update": 1})


APPENDER = """
import sys
from flockax.agents.core.metricslog import MetricsLog
log = MetricsLog(sys.argv[1])
for update in range(10**9):
    log.append({"update": update, "x": [0.5] * 50})
    if update == 100:
        print("on", flush=True)
"""


def test_killed_writer_leaves_readable_metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    command = [sys.executable, "-c", APPENDER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as appender:
        assert appender.stdout.readline() == "on\n"
        appender.kill()
    records = read_metrics(path)
    assert len(records) > 100
    assert [record["update"] for record in records] == list(range(len(records)))


# JSON.


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (True, True),
        (np.bool_(True), True),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (float("nan"), None),
        (np.array([1.0, np.inf, -np.inf, np.nan]), [1.0, None, None, None]),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
        (jnp.array([1.5], jnp.bfloat16), [1.5]),
        (jnp.array(2), 2),
        (np.array(["a"]), ["a"]),
        ((1, None, "x"), [1, None, "x"]),
        ({1: {"a": Path("b")}}, {"1": {"a": "b"}}),
        (Config(0.1, (1,)), {"lr": 0.1, "layers": [1], "out": None}),
    ],
)
def test_json_values(value, expected):
    result = to_json(value)
    assert result == expected
    assert json.loads(json.dumps(result, allow_nan=False)) == expected
    assert type(result) is type(expected)


def test_json_texts_for_what_is_not_finite():
    values = [math.inf, -math.inf, math.nan, 1.0]
    assert to_json({"a": values}, finite=False) == {"a": ["inf", "-inf", "nan", 1.0]}
    assert to_json(np.array(values), finite=False) == ["inf", "-inf", "nan", 1.0]


@pytest.mark.parametrize("value", [Colour.RED, object(), {"a": {1, 2}}, Config, b"bytes", 1j])
def test_json_refuses_the_rest(value):
    with pytest.raises(TypeError, match="allowed is what JSON or arrays hold"):
        to_json(value)


def test_json_refuses_keys_of_generators():
    with pytest.raises(TypeError):
        to_json(jax.random.key(0))


def test_versions():
    found = versions()
    assert found["jax"] == jax.__version__
    assert found["numpy"] == np.__version__
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["device"] == {
        "kind": jax.devices()[0].device_kind,
        "platform": jax.devices()[0].platform,
        "count": jax.device_count(),
    }
    assert set(found) == {
        *("python", "flockax", "jax", "jaxlib", "flax", "optax", "numpy", "device"),
    }
    assert to_json(found) == found


# Dashboards.

RECORD = {
    "update": 3,
    "return_mean": [1.0, None, 3.0],
    "loss": {"actor": [0.5, 1.5], "broken": [None, np.nan]},
    "episodes": np.array([2, 4]),
    "note": "text",
    "nothing": None,
}
CURVES = {"update": 3.0, "return_mean": 2.0, "loss/actor": 1.0, "episodes": 3.0}


def read_events(folder):
    """Every scalar of the newest event file, and the step from which older files are dropped."""
    from tensorboardX import proto

    data, scalars, dropped = max(folder.iterdir()).read_bytes(), {}, None
    while data:
        # A record: length (8 bytes), its checksum (4), the event, its checksum (4).
        size = int.from_bytes(data[:8], "little")
        event = proto.event_pb2.Event.FromString(data[12 : 12 + size])
        data = data[16 + size :]
        if event.session_log.status == proto.event_pb2.SessionLog.START:
            dropped = event.step
        for value in event.summary.value:
            scalars[event.step, value.tag] = value.simple_value
    return scalars, dropped


def test_tensorboard_events_can_be_read(tmp_path):
    writer = TensorBoardWriter(tmp_path)
    writer.log(100, RECORD)
    writer.log(200, {"update": 4})
    writer.close()
    scalars, _ = read_events(tmp_path / "tensorboard")
    expected = {(100, name): value for name, value in CURVES.items()} | {(200, "update"): 4.0}
    assert scalars == pytest.approx(expected)


def test_tensorboard_drops_what_came_after_the_checkpoint(tmp_path):
    writer = TensorBoardWriter(tmp_path, 100)
    writer.log(200, {"update": 4})
    writer.close()
    assert read_events(tmp_path / "tensorboard")[1] == 101


class FakeWandb(types.ModuleType):
    """Stands for wandb, which is too large for the tests."""

    def __init__(self):
        super().__init__("wandb")
        self.started, self.logged, self.finished = [], [], 0

    def init(self, **options):
        self.started.append(options)
        return self

    def log(self, metrics, step):
        self.logged.append((step, metrics))

    def finish(self):
        self.finished += 1


def test_wandb_goes_on_under_its_id(tmp_path, monkeypatch):
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    for _ in range(2):
        writer = WandbWriter(tmp_path / ".", {"lr": 0.1})
        writer.log(100, RECORD)
        writer.close()
    assert fake.logged == [(100, CURVES)] * 2
    assert fake.finished == 2
    first, second = fake.started
    assert first == second
    assert len(first["id"]) == 8
    assert first["resume"] == "allow"
    assert first["name"] == tmp_path.name
    assert first["config"] == {"lr": 0.1}
    assert first["dir"] == str(tmp_path)


def test_wandb_that_cannot_start(tmp_path, monkeypatch):
    fake = FakeWandb()

    def fail(**_):
        raise ValueError("no login\nand more")

    monkeypatch.setattr(fake, "init", fail)
    monkeypatch.setitem(sys.modules, "wandb", fake)
    with pytest.raises(RunError, match=r"^wandb cannot start: no login$"):
        WandbWriter(tmp_path, {})


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("tensorboardX", TensorBoardWriter, "tensorboard"),
        ("wandb", lambda path: WandbWriter(path, {}), "wandb"),
    ],
)
def test_missing_packages_say_what_to_install(tmp_path, monkeypatch, module, make, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RunError, match=rf"--{extra} needs .* pip install 'flockax\[{extra}\]'$"):
        make(tmp_path)
    assert os.listdir(tmp_path) == []


def test_importing_leaves_the_optional_out():
    script = """
import sys, flockax.agents.core.runlog
sys.exit(bool({"tensorboardX", "wandb", "matplotlib", "orbax", "scipy.stats"} & set(sys.modules)))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
