"""Workers that compute in turn, and what is made of their times."""

import json
import math

import pytest
import turns

ECHO = """
import sys
sys.path.insert(0, {workers!r})
from protocol import serve
print("packages may print")

def fail(**request):
    print("even while they work")
    raise ValueError("no such thing")

def leave(**request):
    raise SystemExit(7)

serve({{"echo": lambda **request: request, "fail": fail, "leave": leave}})
"""


@pytest.fixture
def echo(tmp_path):
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(turns.WORKERS)))
    with turns.Worker(str(script)) as worker:
        yield worker


def test_worker_answers_and_outlives_a_failure(echo):
    assert echo.ask("echo", a=1, b=[2.5, None]) == {"a": 1, "b": [2.5, None]}
    with pytest.raises(turns.WorkerError, match="could not fail: ValueError: no such thing"):
        echo.ask("fail")
    assert echo.ask("echo", a=2) == {"a": 2}


def test_worker_that_ends_is_an_error_and_not_a_wait(echo):
    for _ in range(2):
        with pytest.raises(turns.WorkerError, match="ended with exit status 7"):
            echo.ask("leave")


def test_worker_ends_with_its_context(tmp_path):
    script = tmp_path / "echo.py"
    script.write_text(ECHO.format(workers=str(turns.WORKERS)))
    with pytest.raises(KeyError), turns.Worker(str(script)) as worker:
        raise KeyError
    assert worker._process.poll() is not None


def test_summary():
    assert turns.summary([3.0, 1.0, 10.0, 2.0]) == {
        "median": 2.5,
        "low": 1.0,
        "high": 10.0,
        "samples": [3.0, 1.0, 10.0, 2.0],
    }
    with pytest.raises(ValueError, match="no samples"):
        turns.summary([])


def test_ratio_is_of_medians_and_its_range_of_turns():
    assert turns.ratio([10.0, 30.0, 20.0], [5.0, 2.0, 4.0]) == {
        "ratio": 5.0,
        "low": 2.0,
        "high": 15.0,
    }
    with pytest.raises(ValueError, match="zip"):
        turns.ratio([1.0], [1.0, 2.0])


def test_different_jax_is_warned_of():
    def side(jax, jaxlib="3"):
        return {"versions": {"jax": jax, "jaxlib": jaxlib}}

    assert turns.jax_warnings({"ours": side("1"), "peer": side("1")}) == []
    (warning,) = turns.jax_warnings({"ours": side("1"), "peer": side("2")})
    assert "jax: ours 1, peer 2" in warning
    (warning,) = turns.jax_warnings({"ours": side("1"), "peer": side("1", "4")})
    assert "jaxlib: ours 3, peer 4" in warning


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_require_at_least(value):
    turns.require_at_least(1, steps=1)
    with pytest.raises(ValueError, match=r"steps=\S+ is not >= 1"):
        turns.require_at_least(1, steps=value)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ValueError("bad"), 2),
        (turns.WorkerError("bad"), 1),
        (turns.PeerError("bad"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_finish_turns_errors_into_a_line_and_a_status(error, status, capsys):
    def measure():
        raise error

    assert turns.finish(measure, print, True) == status
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1


def test_finish_prints_the_result_alone_to_standard_output(capsys):
    result = {"ratio": 2.0, "warnings": ["look out"]}
    assert turns.finish(lambda: result, lambda _: print("a table"), True) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == result and err == "warning: look out\n"
    assert turns.finish(lambda: result, lambda _: print("a table"), False) == 0
    assert capsys.readouterr().out == "a table\n"
