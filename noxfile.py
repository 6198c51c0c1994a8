from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "imports", "types", "tests-core", "tests-engine", "docs", "wheels"]

ROOT = Path(__file__).parent
CORE = "packages/neuraldbg-core"
ENGINE = "packages/neuraldbg-engine"
PUBLIC = "neuraldbg==1.3.2"  # what stands on PyPI, measured beside ours
PEERS = ("wandb==0.31.*", "torchlens==2.36.*")  # other tools, measured beside ours
ZOO = ("peft>=0.17", "torch_geometric>=2.6")  # what programs of the zoo's optional/ train with


def install(session: nox.Session, *groups: str, packages: tuple[str, ...] = (CORE, ENGINE)) -> None:
    """Install dependency groups and this repository's packages, editable, in one resolution."""
    arguments = [part for group in groups for part in ("--group", group)]
    for package in packages:
        arguments += ["-e", package]
    session.install(*arguments)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    install(session, "lint", packages=())
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    install(session, "types")
    session.run("mypy", *session.posargs)


@nox.session
def imports(session: nox.Session) -> None:
    """Check that every file imports only from floors below its own."""
    install(session, "imports", "torch")
    session.run("lint-imports", *session.posargs)


@nox.session(name="tests-core")
def tests_core(session: nox.Session) -> None:
    """Test the open package with no engine installed."""
    install(session, "test", packages=(CORE,))
    session.run("python", "-c", NO_ENGINE)
    session.run("pytest", "-n", "2", "--dist", "loadfile", "tests/core", *session.posargs)


@nox.session(name="tests-engine")
def tests_engine(session: nox.Session) -> None:
    """Test everything with both packages installed, and measure coverage."""
    install(session, "test")
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the docs with every warning an error, then run their examples in order."""
    install(session, "docs", "test")
    session.run("sphinx-build", "-n", "-W", "--keep-going", "-b", "html", "docs", "docs/_build")
    session.run("pytest", "-p", "no:randomly", "docs", "README.md", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build both distributions once, check them, and try them in an empty environment."""
    install(session, "wheels", packages=())
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    for package in (CORE, ENGINE):
        session.run("python", "-m", "build", "--outdir", str(dist), package)
    built = sorted(str(path) for path in dist.iterdir())
    session.run("twine", "check", "--strict", *built)
    wheel = {path.name.split("-")[0]: path for path in dist.glob("*.whl")}
    session.run("check-wheel-contents", *(str(path) for path in wheel.values()))

    empty = Path(session.create_tmp()).resolve() / "empty"
    shutil.rmtree(empty, ignore_errors=True)
    session.run("python", "-m", "venv", str(empty))
    python = str(empty / "bin" / "python")
    pip = (python, "-m", "pip", "install", "--quiet")
    session.run(*pip, "--upgrade", "pip>=25.1", external=True)
    session.run(*pip, "--group", "torch", str(wheel["neuraldbg"]), external=True)
    # From the temporary folder, so that nothing is imported from the checkout.
    with session.chdir(empty):
        session.run(python, "-c", NO_ENGINE, external=True)
        session.run(python, "-c", CHEAP_IMPORT, external=True)
        session.run(str(empty / "bin" / "neuraldbg"), "--help", external=True, silent=True)
        session.run(*pip, "--no-deps", str(wheel["neuraldbg_engine"]), external=True)
        session.run(python, "-c", ENGINE_FOUND, external=True)


TRAINERS = {
    "lightning": ("lightning>=2.4",),
    "transformers": ("transformers>=4.46", "accelerate>=1.1"),
    "accelerate": ("accelerate>=1.1",),
    "ignite": ("pytorch-ignite>=0.5",),
}


@nox.session
@nox.parametrize("library", list(TRAINERS), ids=list(TRAINERS))
def trainers(session: nox.Session, library: str) -> None:
    """Test the open package under a trainer of others, with the real library."""
    install(session, "test", packages=(CORE,))
    session.install(*TRAINERS[library])
    tests = f"tests/matrix/trainers/test_{library}.py"
    # Not one of them may be skipped for want of the library.
    session.run("python", "-c", f"import {library}")
    session.run("pytest", "-n", "2", tests, *session.posargs)


@nox.session
def example(session: nox.Session) -> None:
    """Install the example plugin as its author would, and run its tests."""
    install(session, "test", packages=(CORE, "examples/plugin"))
    session.run("pytest", "examples/plugin", *session.posargs)


def environment(session: nox.Session, name: str, *packages: str) -> str:
    """Make an environment for all sessions, with torch and packages; return its interpreter."""
    folder = session.cache_dir.resolve() / name
    python, wanted = str(folder / "bin" / "python"), " ".join(packages)
    made = folder / "made-of.txt"  # written last: what was cut short is made anew
    if not made.is_file() or made.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        session.run("python", "-m", "venv", str(folder))
        pip = (python, "-m", "pip", "install", "--quiet")
        session.run(*pip, "--upgrade", "pip>=25.1", external=True)
        session.run(*pip, "--group", "torch", *packages, external=True)
        made.write_text(wanted, encoding="utf-8")
    return python


def public_release(session: nox.Session) -> str:
    """Make an environment of its own for the published release; return its interpreter."""
    return environment(session, "public", "numpy", PUBLIC)


def measure(session: nox.Session, *command: str) -> None:
    """Run a measurement and rewrite the pages from it.

    With arguments, `nox -s NAME -- ARGUMENTS`, nothing is saved unless `--save` is among them: a
    part of the zoo, or fewer rounds, is no figure for the pages.
    """
    save = () if session.posargs else ("--save",)
    session.run("python", *command, *save, *session.posargs)
    if "--save" in (*save, *session.posargs):
        session.run("python", "benchmarks/report.py")


def score(session: nox.Session, script: str) -> None:
    """Run a script over the zoo, for this repository and for the published release."""
    install(session, "bench")
    session.install(*ZOO)
    measure(session, script)
    measure(session, script, "--public", public_release(session))


@nox.session(name="bench-accuracy")
def bench_accuracy(session: nox.Session) -> None:
    """Score what NeuralDBG says of the zoo's faulty programs, and the published release too."""
    score(session, "benchmarks/bench_accuracy.py")


@nox.session(name="bench-quiet")
def bench_quiet(session: nox.Session) -> None:
    """Count the false alarms on healthy programs and fixed twins, the published release's too."""
    score(session, "benchmarks/bench_quiet.py")


@nox.session(name="bench-overhead")
def bench_overhead(session: nox.Session) -> None:
    """Measure what watching costs, in one interleaved run with other tools."""
    install(session, "bench")
    peers = environment(session, "peers", *PEERS)
    others = ("--peers", peers, "--public", public_release(session))
    measure(session, "benchmarks/bench_beside.py", *others)
    if not session.posargs:
        measure(session, "benchmarks/bench_memory.py")
        measure(session, "benchmarks/bench_explain.py")


@nox.session(name="zoo-check")
def zoo_check(session: nox.Session) -> None:
    """Prove without NeuralDBG that every fault of the zoo hurts and that removing it helps."""
    install(session, "torch", packages=())
    session.install("numpy", *ZOO)
    session.run("python", "benchmarks/zoo/check.py", *session.posargs)


NO_ENGINE = """
from importlib.util import find_spec
assert find_spec("neuraldbg_engine") is None, "the engine must be absent here"
"""

CHEAP_IMPORT = """
import sys, time
start = time.perf_counter()
import neuraldbg
seconds = time.perf_counter() - start
heavy = {"torch", "numpy"} & set(sys.modules)
assert not heavy, f"import neuraldbg imports {sorted(heavy)}"
assert seconds < 0.3, f"import neuraldbg takes {seconds:.2f} s"
print(f"neuraldbg {neuraldbg.__version__} imported in {seconds * 1000:.0f} ms")
"""

ENGINE_FOUND = """
from importlib.metadata import entry_points
(engine,) = (e for e in entry_points(group="neuraldbg") if e.name == "engine")
print("found", engine.load().__name__)
"""
