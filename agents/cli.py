"""The command line: trains, evaluates, shows and plots.

``flockax``, ``python train.py`` and, for one learner, ``python agents/ippo.py`` all come here.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import shlex
import sys
import typing
from pathlib import Path
from typing import Annotated, Any

DEFAULT_LEARNER, DEFAULT_ENV = "ippo", "tag"
PATHS = ("--out", "--opponent", "--start-from")

USAGE = """\
usage: flockax [LEARNER] [--env ID] [--OPTION VALUE ...]   train; by default ippo on tag
       flockax evaluate TARGET [--episodes N]              returns as one JSON object
       flockax watch TARGET --out FILE                     a replay: .html .gif .mp4 .png
       flockax plot RUN [RUN ...] --out FILE               learning curves
       flockax --out RUN --resume                          go on with a run that was stopped
       flockax --list                                      environments, learners, policies

TARGET is the folder of a run, or the name of a policy (then with --env ID).

  flockax                                                  the main job, about two minutes
  flockax ippo --env spread --seeds 8 --total-steps 2e6 --out runs/spread
  flockax ippo --env spread --env.num-agents 5 --env.params.horizon 50
  flockax ippo --out runs/spread --resume                  goes on where it stopped

All options of a learner:    flockax ippo --help   (with --env ID: those of the environment)
All options of a command:    flockax evaluate --help
"""


class UsageError(ValueError):
    """The words of the command line are off."""


def main(args: list[str] | None = None, learner: str | None = None) -> None:
    """Runs a command and leaves the process with its status.

    Args:
        args: the words after the name of the program; those of the process by default.
        learner: if given, every line trains this learner.
    """
    sys.exit(run(sys.argv[1:] if args is None else args, learner))


def run(args: list[str], learner: str | None = None) -> int:
    """Runs a command; mistakes and failures become one message.

    Args:
        args: the words after the name of the program.
        learner: if given, every line trains this learner.

    Returns:
        The exit status: 0, 1 for a failure, 2 for a mistake in `args`, 128 + n after signal n.
    """
    try:
        return _dispatch(_plain_integers(args), learner)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        status = _status(error)
        if status is None:
            raise
        print(f"error: {error}" if status < 128 else str(error), file=sys.stderr)
        return status


def _status(error: Exception) -> int | None:
    """The exit status of an expected error, None for one that is a fault of ours."""
    if isinstance(error, ValueError):
        return 2
    from flockax.agents.core.checkpoint import CheckpointError
    from flockax.agents.core.files import RunError
    from flockax.agents.core.training import Stopped, TrainingError

    if isinstance(error, Stopped):
        return 128 + error.signum
    if isinstance(error, CheckpointError | RunError | TrainingError | OSError | ImportError):
        return 1
    return None


def _dispatch(args: list[str], learner: str | None) -> int:
    if learner is not None:
        return _train(learner, args)
    command, rest = (args[0], args[1:]) if args and not args[0].startswith("-") else ("", args)
    commands = {"evaluate": _evaluate, "watch": _watch, "plot": _plot}
    if command in commands:
        return commands[command](rest)
    if not command and rest and rest[0] in ("--help", "-h"):
        print(USAGE, end="")
        return 0
    if not command and "--list" in rest:
        return _list()
    return _train(command or DEFAULT_LEARNER, rest)


def _plain_integers(args: list[str]) -> list[str]:
    """Values like ``2e6`` as ``2000000``, so that integers may be written so; paths stay."""
    before = ["", *args]
    values = [option.startswith("--") and option not in PATHS for option in before]
    return [_plain_integer(w) if value else w for w, value in zip(args, values, strict=False)]


def _plain_integer(word: str) -> str:
    """``2e6`` as ``2000000``, other words as they are."""
    if re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d+", word) and float(word).is_integer():
        return str(int(float(word)))
    return word


def _take(args: list[str], option: str) -> tuple[str | None, list[str]]:
    """Takes ``--option VALUE`` or ``--option=VALUE`` out of the words."""
    value, rest, i = None, [], 0
    while i < len(args):
        if args[i] == option:
            if i + 1 == len(args):
                raise UsageError(f"{option} needs a value")
            value, i = args[i + 1], i + 2
        elif args[i].startswith(f"{option}="):
            value, i = args[i].split("=", 1)[1], i + 1
        else:
            rest.append(args[i])
            i += 1
    return value, rest


def _list() -> int:
    from flockax.agents.core.runs import LEARNERS, POLICIES
    from flockax.envs import registered

    sections = {
        "environments": [(entry.id, entry.description) for entry in registered()],
        "learners": list(LEARNERS.items()),
        "policies": [(name, text) for name, (text, _) in POLICIES.items()],
    }
    for title, lines in sections.items():
        print(f"{title}:")
        for name, text in lines:
            print(f"  {name:<16} {text}")
    return 0


def _train(learner: str, args: list[str]) -> int:
    from flockax.agents.core.runs import learner_module, make_trainer
    from flockax.agents.core.training import RunOptions, train
    from flockax.envs import make

    module = learner_module(learner)
    env_id, rest = _take(args, "--env")
    old = _config_to_resume(rest)
    env_id = env_id or (old["env"]["id"] if old else DEFAULT_ENV)
    preset, rest = _take(rest, "--preset")
    if preset is not None and preset not in module.PRESETS:
        raise UsageError(f"{learner} has no preset {preset!r}; it has {', '.join(module.PRESETS)}")
    settings, options, env = module.PRESETS[preset or "default"], RunOptions(), _env_options(env_id)
    if old and old["learner"] == learner and old["env"]["id"] == env_id and preset is None:
        settings, saved = module.Config(**_tuples(old["config"])), _tuples(old["run"])
        source = saved.get("start_from")
        options = RunOptions(**{**saved, "start_from": source and Path(source)})
        env = _env_options(env_id, old["env"])
    given = _parse(
        f"flockax {learner} --env {env_id}",
        rest,
        settings=(module.Config, settings, True),
        run=(RunOptions, options, True),
        env=env,
    )
    opponents = tuple(_absolute(spec) for spec in given.run.opponent)
    source = given.run.start_from and given.run.start_from.resolve()
    run_options = dataclasses.replace(given.run, opponent=opponents, start_from=source)
    given = dataclasses.replace(given, run=run_options)
    fields = given.env.fields_()
    made = make(env_id, **fields)
    # As the environment writes them: paths become absolute, so that the run can be read from anywhere.
    fields = {n: getattr(made, n) if isinstance(x, str) else x for n, x in fields.items()}
    config = {
        "learner": learner,
        "env": {"id": env_id, "fields": fields, "params": given.env.params_()},
        "config": dataclasses.asdict(given.settings),
        "run": {
            name: str(value) if isinstance(value, Path) else value
            for name, value in dataclasses.asdict(given.run).items()
            if name not in ("out", "resume", "tensorboard", "wandb")
        },
    }
    path, summary = train(make_trainer(config), learner, env_id, given.run, config)
    interval = summary["return_interval"]
    spread = f", 95 % interval {interval[0]:.2f} to {interval[1]:.2f}" if interval else ""
    print(f"{summary['convention']}")
    print(
        f"return {summary['return_mean']:.2f} (greedy {summary['greedy']['return_mean']:.2f}), "
        f"IQM over seeds {summary['return_iqm']:.2f}{spread}"
    )
    print(
        f"{summary['env_steps_per_seed']:,} environment steps a seed, "
        f"{summary['env_steps_per_second']:,.0f} steps/s, {summary['seconds']:.0f} s and "
        f"{summary['compile_seconds']:.0f} s to compile"
    )
    print(f"flockax watch {shlex.quote(str(path))} --out replay.html")
    return 0


def _config_to_resume(args: list[str]) -> dict[str, Any] | None:
    """The configuration of the run that ``--out RUN --resume`` goes on with, if there is one."""
    from flockax.agents.core.runlog import RunFolder

    out, _ = _take(args, "--out")
    if "--resume" not in args or out is None or not (Path(out) / "config.json").is_file():
        return None
    return RunFolder(out).read_config()


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON lists as the tuples that they were."""
    return {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}


def _absolute(opponent: str) -> str:
    """``GROUP=RUN`` with the whole path, so that the run can be read from anywhere."""
    group, _, target = opponent.partition("=")
    return f"{group}={Path(target).resolve()}" if target and Path(target).is_dir() else opponent


def _evaluate(args: list[str]) -> int:
    from flockax.agents.core.evaluation import evaluate

    player, options = _player("flockax evaluate", args)
    many = f"{options.episodes} episodes" + f" of {len(player.seeds)} seeds" * bool(player.seeds)
    print(f"playing {many}, sampled and greedy ...", file=sys.stderr, flush=True)
    result = evaluate(player.policy, player.env, player.params, options.episodes, player.stacked)
    if player.seeds:
        result["seeds"] = list(player.seeds)
    if options.opponent:
        result["convention"] += f"; {', '.join(options.opponent)}"
    print(json.dumps(result, indent=2))
    return 0


def _watch(args: list[str]) -> int:
    import jax

    from flockax.envs.viewer import record, save_replay
    from flockax.envs.viewer.render import check_suffix

    parser_options = [
        ("--out", {"type": Path, "required": True, "help": "file: .html, .gif, .mp4 or .png"}),
        ("--seed", {"type": int, "default": None, "help": "trained seed; the first by default"}),
        ("--greedy", {"action": "store_true", "help": "most probable actions, no samples"}),
        ("--key", {"type": int, "default": 0, "help": "random key of the episodes"}),
    ]
    player, options = _player("flockax watch", args, parser_options, episodes=4)
    check_suffix(options.out)
    if not 0 <= options.key < 2**32:
        raise UsageError(f"--key {options.key} is not in 0 .. 2^32 - 1")
    policy = player.one(0 if options.seed is None else player.position(options.seed))

    def act(
        key: Any, carry: Any, observation: Any, state: Any, params: Any, reset: Any
    ) -> tuple[Any, Any]:
        batched = jax.tree.map(lambda x: x[None], (observation, state, reset))
        action, carry = policy.act(
            key, carry, batched[0], batched[1], params, batched[2], options.greedy
        )
        return action[0], carry

    recording = record(
        player.env, act, options.key, options.episodes, player.params, carry=policy.init(1)
    )
    save_replay(recording, options.out)
    print(options.out)
    return 0


def _plot(args: list[str]) -> int:
    from flockax.agents.core.plotting import plot_runs

    parser = argparse.ArgumentParser(prog="flockax plot")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help="file: .png, .svg or .pdf")
    options = parser.parse_args(args)
    plot_runs(options.runs, options.out)
    print(options.out)
    return 0


def _player(
    prog: str, args: list[str], extra: list[tuple[str, Any]] | None = None, episodes: int = 256
) -> tuple[Any, argparse.Namespace]:
    """Parses a command that takes a TARGET; returns the player and the options."""
    from flockax.agents.core.runs import (
        POLICIES,
        against,
        env_of,
        find,
        load,
        load_opponents,
        require_target,
        transfer,
    )
    from flockax.envs import make

    parser = argparse.ArgumentParser(prog=prog)
    parser.add_argument("target", metavar="TARGET", help="folder of a run, or name of a policy")
    parser.add_argument(
        "--episodes", type=int, default=episodes, help="for each seed (%(default)s)"
    )
    parser.add_argument(
        "--opponent",
        action="append",
        default=[],
        metavar="GROUP=WHO",
        help="who plays a group: random, a policy or a run; may be repeated",
    )
    for name, settings in extra or []:
        parser.add_argument(name, **settings)
    parser.add_argument(
        "--env",
        help="environment of a policy by name; --env.FIELD and so on too, and for a run to play in "
        "another world than it was trained in",
    )
    options, rest = parser.parse_known_args(args)
    if options.episodes < 1:
        raise UsageError(f"--episodes {options.episodes} is not at least 1")
    require_target(options.target)
    if options.target in POLICIES and options.env is None:
        raise UsageError(f"policy {options.target!r} needs an environment: --env ID")
    if options.target not in POLICIES and options.env is not None:
        raise UsageError(
            f"{options.target} brings its environment: leave out --env, not --env.FIELD"
        )
    if not any(word.startswith("--env.") for word in rest) and options.env is None:
        if rest:
            raise UsageError(f"unknown words: {' '.join(rest)}")
        player = load(options.target)
    else:
        old = {} if options.env else env_of(options.target)
        env_id = options.env or old["id"]
        given = _parse(prog, rest, env=_env_options(env_id, old))
        env = make(env_id, **given.env.fields_())
        params = env.make_params(**given.env.params_())
        if not old:
            player = find(options.target, env, env_id, params)
        else:
            player = transfer(options.target, env, params)
    return against(player, load_opponents(options.opponent, player.env)), options


def _env_options(env_id: str, old: dict[str, Any] | None = None) -> tuple[type, Any, bool]:
    """A dataclass with the fields and parameters of an environment, for `_parse`.

    Args:
        env_id: the environment.
        old: ``fields`` and ``params`` of a run, the defaults of one that goes on with it.
    """
    from tyro.conf import arg

    from flockax.envs import registry

    cls: Any = registry.entry(env_id).cls
    hints = typing.get_type_hints(cls)
    fields = {f.name: (hints[f.name], f.default) for f in dataclasses.fields(cls)}
    plain = type(cls().default_params)
    texts = {name: _without_markup(text) for name, text in _field_texts(plain).items()}
    annotated: Any = Annotated
    numbers = {
        f.name: (annotated[type(f.default), arg(help=texts.get(f.name, ""))], f.default)
        for f in dataclasses.fields(plain)
        if isinstance(f.default, bool | int | float)
    }
    params_cls = dataclasses.make_dataclass(
        "Params", [(name, *spec) for name, spec in numbers.items()], frozen=True
    )
    params_cls.__doc__ = _without_markup(plain.__doc__ or "")

    def given_fields(self: Any) -> dict[str, Any]:
        return {name: getattr(self, name) for name in fields}

    def given_params(self: Any) -> dict[str, Any]:
        return dataclasses.asdict(self.params)

    options = dataclasses.make_dataclass(
        "Env",
        [(name, *spec) for name, spec in fields.items()]
        + [("params", params_cls, dataclasses.field(default_factory=params_cls))],
        frozen=True,
        namespace={"fields_": given_fields, "params_": given_params},
    )
    options.__doc__ = _without_markup(cls.__doc__ or "")
    default = options()
    if old:
        default = options(**old["fields"], params=params_cls(**old["params"]))
    return options, default, False


def _field_texts(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each field."""
    from docstring_parser import parse

    docs = [parse(base.__doc__ or "") for base in reversed(cls.__mro__)]
    return {p.arg_name: p.description or "" for doc in docs for p in doc.params}


def _without_markup(text: str) -> str:
    """A docstring for a terminal: without backticks and asterisks around words."""
    return re.sub(r"(`{1,2}|\*\*)(.+?)\1", r"\2", text)


def _parse(prog: str, args: list[str], **parts: tuple[type, Any, bool]) -> Any:
    """Parses words into dataclasses.

    Args:
        prog: what the help calls the program.
        args: the words.
        **parts: for each part its class, its default, and whether its options have no prefix.

    Returns:
        An object with an attribute for each part.
    """
    import tyro

    annotated: Any = Annotated
    fields: list[Any] = []
    for name, (cls, default, flat) in parts.items():
        kind = annotated[cls, tyro.conf.arg(name="" if flat else name, prefix_name=not flat)]
        fields.append((name, kind, dataclasses.field(default=default)))
    whole = dataclasses.make_dataclass("Options", fields, frozen=True)
    return tyro.cli(whole, args=args, prog=prog, description="")
