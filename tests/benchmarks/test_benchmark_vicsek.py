"""The transition from order to disorder, as Vicsek et al. (1995) found it."""

import json

import numpy as np
import pytest
import vicsek

SIZES = (50, 200, 450)


def test_order_falls_with_noise_from_one_to_that_of_random_headings():
    noise = np.asarray([0.0, 0.6, 3.0, 4.0, 2 * np.pi])
    curves = np.array([vicsek.sweep(size, noise, settle=250, steps=150, runs=2) for size in SIZES])
    assert (curves[:, 0] > 0.99).all(), "without noise all head the same way"
    assert (curves[:, 1] > 0.95).all(), "little noise leaves order"
    random = np.sqrt(np.pi / (4 * np.asarray(SIZES)))
    np.testing.assert_allclose(curves[:, -1], random, rtol=0.15)
    assert (np.diff(curves, axis=1) < 0).all(), "more noise, less order"
    # The larger the flock, the sharper the transition: less is left of the order beyond it.
    assert (np.diff(curves[:, 3]) < 0).all()
    # Ordered far beyond chance before the transition, also in large flocks.
    assert (curves[:, 2] > 4 * random)[1:].all()


def test_command_prints_and_draws(capsys, tmp_path):
    out = tmp_path / "curves.png"
    words = [
        "--sizes",
        "5",
        "9",
        "--points",
        "2",
        "--settle",
        "3",
        "--steps",
        "2",
        "--out",
        f"{out}",
    ]
    assert vicsek.main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["noise"] == [0, pytest.approx(2 * np.pi, abs=1e-4)]
    assert set(result["order"]) == {"5", "9"} and len(result["order"]["5"]) == 2
    assert out.stat().st_size > 5000
    assert vicsek.main(["--points", "1"]) == 2
    assert "points=1 is not >= 2" in capsys.readouterr().err
