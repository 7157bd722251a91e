"""What is installed, what an import loads, and which part may lean on which."""

import ast
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
FOLDERS = {"flockax.envs": "envs", "flockax.agents": "agents"}
SHARED = {"adapters", "space", "viewer"}  # folders of envs/ that are no family of environments

# Beyond what jax and flax load themselves; numpy comes with jax.
HEAVY = {
    *("PIL", "chex", "distrax", "gymnasium", "imageio", "jaxmarl", "matplotlib", "optax", "orbax"),
    *("pandas", "pettingzoo", "tensorboardX", "tensorflow_probability", "torch", "tyro", "wandb"),
}


def python(code: str, **environ: str) -> str:
    """Runs code in a fresh Python, away from the repository, and returns what it prints."""
    command = [sys.executable, "-c", code]
    environ = {**os.environ, **environ}
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(imports: str) -> set[str]:
    """The top-level packages in `sys.modules` after some imports."""
    show = "import json, sys\nprint(json.dumps([name.split('.')[0] for name in sys.modules]))"
    return set(json.loads(python(f"{imports}\n{show}").splitlines()[-1]))


def modules() -> list[str]:
    """The dotted names of all modules of both packages."""
    return [name for name, _ in sources()]


def sources() -> Iterator[tuple[str, Path]]:
    """``(dotted name, file)`` of every module of both packages."""
    for package, folder in FOLDERS.items():
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            parts = path.relative_to(REPOSITORY / folder).with_suffix("").parts
            name = ".".join([package, *parts])
            yield name.removesuffix(".__init__"), path


def imported_by(path: Path, name: str) -> set[str]:
    """The dotted names that a file imports anywhere, also within functions.

    ``from a import b`` counts as ``a.b``, which names the module or is below it.
    """
    found = set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{prefix}.{alias.name}" for alias in node.names}
    return found


def is_below(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def below(names: set[str], package: str) -> set[str]:
    """Those of the names that are the package or in it."""
    return {name for name in names if is_below(name, package)}


# --- imports ----------------------------------------------------------------------------------------


def test_environments_load_jax_flax_numpy_and_nothing_heavier():
    baseline = loaded_by("import jax, jax.numpy, flax.struct, numpy")
    own = loaded_by("import flockax.envs") - baseline
    third_party = {name for name in own - sys.stdlib_module_names if not name.startswith("_")}
    assert third_party == {"flockax"}
    assert not HEAVY & (baseline | own)


def test_every_environment_and_adapter_is_made_without_more():
    """Late imports are for what draws or adapts, not for what plays."""
    code = """
import flockax.envs, flockax.envs.adapters
from flockax.envs import VectorEnv, make, registered
for entry in registered():
    env = make(entry.id)
    VectorEnv(env, 2), env.observation_spec, env.default_params
"""
    assert not HEAVY & loaded_by(code)


def test_no_import_touches_a_device_or_builds_an_array():
    """With a platform that does not exist, the first array fails; so does asking for devices."""
    code = f"""
import importlib, jax
for name in {modules()!r}:
    importlib.import_module(name)
try:
    jax.devices()
except RuntimeError as error:
    print("no device:", error)
"""
    assert "no device:" in python(code, JAX_PLATFORMS="nowhere")


def test_imports_have_no_side_effects():
    code = f"""
import importlib, jax, logging, os, random, signal, warnings
import numpy as np
keys = ("jax_enable_x64", "jax_debug_nans", "jax_default_matmul_precision", "jax_compilation_cache_dir")
def world():
    handlers = [signal.getsignal(x) for x in (signal.SIGINT, signal.SIGTERM)]
    random_state = (random.getstate(), np.random.get_state()[1].tobytes())
    config = [getattr(jax.config, key) for key in keys]
    return dict(os.environ), os.getcwd(), handlers, random_state, config
import flax, gymnasium, pettingzoo  # which set variables themselves
before = world()
for name in {[m for m in modules() if m.startswith("flockax.envs")]!r}:
    importlib.import_module(name)
after = world()
assert before == after
"""
    python(code)


# --- who leans on whom --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "path"), list(sources()), ids=modules())
def test_dependencies_point_one_way(name, path):
    imports = imported_by(path, name)
    if is_below(name, "flockax.envs"):
        assert not below(imports, "flockax.agents"), "envs never imports agents"
        family = name.split(".")[2] if name.count(".") > 2 else None
        if family and family not in SHARED:
            for other in families() - {family}:
                assert not below(imports, f"flockax.envs.{other}"), (
                    "families don't import each other"
                )
            # Through the registry they would.
            assert not below(imports, "flockax.envs.registry")
        if family == "space":
            for other in families():
                assert not below(imports, f"flockax.envs.{other}"), "space serves the families"
    elif is_below(name, "flockax.agents.core"):
        for other in learners():
            assert not below(imports, f"flockax.agents.{other}"), "core never imports a learner"
    for outside in ("benchmarks", "tests", "train"):
        assert not below(imports, outside), "nothing imports benchmarks, tests or the script"


def families() -> set[str]:
    folders = {p.name for p in (REPOSITORY / "envs").iterdir() if (p / "__init__.py").is_file()}
    return folders - SHARED


def learners() -> set[str]:
    return {p.stem for p in (REPOSITORY / "agents").glob("*.py")} - {"__init__"}


def test_there_is_something_to_separate():
    assert {"predator_prey", "swarm"} <= families() and "ippo" in learners()


def project_files() -> list[Path]:
    hidden = {"build", "dist", "__pycache__", "site-packages", "runs"}
    return [
        path
        for path in sorted(REPOSITORY.rglob("*.py"))
        if not any(
            part in hidden or part.startswith(".") for part in path.relative_to(REPOSITORY).parts
        )
    ]


def test_code_uses_the_installed_names():
    """``import envs`` would load a second copy, and collide with a user's own ``envs``."""
    files = project_files()
    assert len(files) > 40
    for path in files:
        name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        tree = ast.parse(path.read_text())
        relative = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level]
        assert not relative, f"{path}: relative import"
        for short in FOLDERS.values():
            assert not below(imported_by(path, name), short), (
                f"{path} imports {short}, not flockax.{short}"
            )


def test_the_reader_of_imports_reads_all_forms(tmp_path):
    source = """
import a.b as x, c
from d.e import f, g as h
def late():
    from i import j
    if True:
        import k.l
"""
    path = tmp_path / "m.py"
    path.write_text(source)
    assert imported_by(path, "p.m") == {"a.b", "c", "d.e.f", "d.e.g", "i.j", "k.l"}
    path.write_text("from . import a\nfrom .b import c\nfrom ..d import e")
    assert imported_by(path, "p.q.m") == {"p.q.a", "p.q.b.c", "p.d.e"}


# --- what is installed ------------------------------------------------------------------------------


def test_the_list_of_packages_is_the_tree():
    tree = {name for name, path in sources() if path.name == "__init__.py"}
    folders = {
        ".".join([package, *path.relative_to(REPOSITORY / folder).parts])
        for package, folder in FOLDERS.items()
        for path in [REPOSITORY / folder, *(REPOSITORY / folder).rglob("*")]
        if path.is_dir() and any(path.glob("*.py"))
    }
    assert tree == folders, "a folder with code has no __init__.py"
    tool = PYPROJECT["tool"]["setuptools"]
    assert set(tool["packages"]) == tree and len(tool["packages"]) == len(tree)
    assert tool["package-dir"] == FOLDERS


def test_files_that_are_not_code_are_listed():
    data = PYPROJECT["tool"]["setuptools"]["package-data"]
    listed = {f"{package}/{name}" for package, names in data.items() for name in names}
    found = set()
    for package, folder in FOLDERS.items():
        for path in (REPOSITORY / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".py", ".pyc"):
                inner = path.relative_to(REPOSITORY / folder)
                found.add(f"{'.'.join([package, *inner.parent.parts])}/{inner.name}")
    assert listed == found


def test_versions_of_jax_that_compute_wrong_results_are_excluded():
    required = [x for x in PYPROJECT["project"]["dependencies"] if x.startswith("jax")]
    assert required == ["jax>=0.9,!=0.10.2"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy, so that nothing is left in the repository."""
    source = tmp_path_factory.mktemp("source")
    for folder in FOLDERS.values():
        copy_tree(REPOSITORY / folder, source / folder)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (source / name).write_bytes((REPOSITORY / name).read_bytes())
    target = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target)]
    done = subprocess.run([*pip, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next(target.glob("*.whl"))


def copy_tree(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


@pytest.mark.slow
def test_the_wheel_has_everything(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry_points = next(x for x in names if x.endswith("entry_points.txt"))
        assert "flockax = flockax.agents.cli:main" in archive.read(entry_points).decode()
    expected = {
        f"flockax/{folder}/{path.relative_to(REPOSITORY / folder)}"
        for folder in FOLDERS.values()
        for path in (REPOSITORY / folder).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert {name for name in names if not name.split("/")[0].endswith(".dist-info")} == expected
    assert {"flockax/envs/py.typed", "flockax/agents/py.typed"} <= names
    assert "flockax/envs/viewer/replay.html" in names


@pytest.mark.slow
def test_the_wheel_works_where_it_is_installed(wheel, tmp_path):
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(tmp_path),
    ]
    subprocess.run([*pip, str(wheel)], check=True)
    code = """
import jax, flockax.envs, flockax.agents
from flockax.envs import make
print(flockax.envs.__file__, flockax.agents.__file__)
print(make("tag").reset(jax.random.key(0))[0].features.shape)
"""
    said = python(code, PYTHONPATH=str(tmp_path)).split()
    assert all(x.startswith(str(tmp_path)) for x in said[:2]), said
    assert "".join(said[2:]) == "(4,16)"
