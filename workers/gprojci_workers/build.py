"""Step build: a commit's package in an environment of its own, kept by a key so that equal code is built once.

The environment sees the ruler's packages (torch, the suite) behind its own, so head and base are measured with the same
torch, and a subject's own dependencies stay its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gprojci_suite.contract.manifest import Build
from gprojci_workers import nvidia_smi, sandbox
from gprojci_workers.checkout import Repository
from gprojci_workers.failure import AttemptCancelled, AttemptFailed
from gprojci_workers.isolation import Files
from gprojci_workers.settings import Settings

WEEK_SECONDS = 7 * 24 * 3600
_FACTS = """
import importlib.metadata as m, json, os, pathlib, sys, sysconfig, gprojci_suite
from gprojci_suite.contract import bundled
found = sorted(f"{d.metadata['Name']}=={d.version}" for d in m.distributions())
suite = str(pathlib.Path(gprojci_suite.__file__).parents[1])
paths = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), suite]
packages = [package for package in found if not package.startswith("gproj")]
ruler = gprojci_suite.__version__
facts = {"python": sys.version, "ruler": ruler, "packages": packages, "paths": list(dict.fromkeys(paths))}
facts["inputs"] = bundled.names()
links = [e for p in map(pathlib.Path, paths) if p.is_dir() for e in p.iterdir() if e.is_symlink()]
places = {str(e.resolve().parent) for e in links}
facts["files"] = sorted({sys.prefix, sys.base_prefix, *(p for p in sys.path if os.path.exists(p)), *places})
print(json.dumps(facts))
"""


@dataclass(frozen=True)
class Built:
    """A built revision."""

    revision: str
    key: str
    python: Path
    site: Path
    reused: bool
    seconds: float
    log_tail: str

    def to_json(self) -> dict[str, Any]:
        """As the worker API takes it."""
        return {
            "revision": self.revision,
            "key": self.key,
            "reused": self.reused,
            "seconds": self.seconds,
            "status": "ok",
            "log_tail": self.log_tail,
        }


class BuildFailed(AttemptFailed):
    """pip could not install the commit."""

    def __init__(self, revision: str, key: str, seconds: float, log_tail: str, detail: str) -> None:
        super().__init__("build_error", detail)
        self.build = {
            "revision": revision,
            "key": key,
            "reused": False,
            "seconds": seconds,
            "status": "build_error",
            "log_tail": log_tail,
        }


def build(
    settings: Settings,
    repository: Repository,
    *,
    revision: str,
    sha: str,
    recipe: Build,
    scratch: Path,
    on_output: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> Built:
    """Builds a commit as its manifest says, or takes the kept environment of the same key.

    Raises:
        BuildFailed: pip failed; carries the end of its output.
        AttemptCancelled: it was to stop.
    """
    began = time.monotonic()
    facts = {name: fact for name, fact in ruler_facts(settings.ruler_python).items() if name != "files"}
    identity = [
        repository.key,  # a build reads its whole work tree: what it makes of equal paths is not another project's
        repository.tree(sha, recipe.path),
        recipe.extras,
        recipe.isolation,
        facts,
        gpu_architecture(settings.device),
    ]
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    directory = settings.cache_dir / "builds" / key
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        finished = directory / "finished"
        if finished.exists():
            on_output(f"build {revision} {sha[:10]}: kept environment {key} is used\n")
            tail = ""
        else:
            tail = _install(
                settings, repository, directory, revision, key, sha, recipe, scratch, facts, on_output, should_stop
            )
        finished.touch()  # also where it was kept: when it was used last
        _prune(settings)
        environment = directory / "env"
        return Built(
            revision, key, environment / "bin" / "python", environment, not tail, time.monotonic() - began, tail
        )


def _install(
    settings: Settings,
    repository: Repository,
    directory: Path,
    revision: str,
    key: str,
    sha: str,
    recipe: Build,
    scratch: Path,
    facts: dict[str, Any],
    on_output: Callable[[str], None],
    should_stop: Callable[[], bool],
) -> str:
    began = time.monotonic()
    environment = directory / "env"
    shutil.rmtree(environment, ignore_errors=True)  # one that was killed half way
    on_output(f"build {revision} {sha[:10]}: new environment {key}\n")
    with repository.worktree(sha, scratch / f"source-{revision}") as source:
        path = (source / recipe.path).resolve()
        if not path.is_relative_to(source.resolve()):
            raise AttemptFailed("build_error", f"[build] path {recipe.path!r} leads out of the repository")
        subprocess.run([settings.ruler_python, "-m", "venv", "--without-pip", environment], check=True, timeout=120)
        packages = next(environment.glob("lib/python*/site-packages"))
        (packages / "gprojci_ruler.pth").write_text("\n".join(facts["paths"]) + "\n")
        target = f"{path}[{','.join(recipe.extras)}]" if recipe.extras else str(path)
        command = [
            str(settings.ruler_python),
            "-m",
            "pip",
            "--python",
            str(environment / "bin" / "python"),
            "install",
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
            "--no-warn-script-location",
            *([] if recipe.isolation else ["--no-build-isolation"]),
            target,
        ]
        home = scratch / f"home-{revision}"
        home.mkdir(parents=True, exist_ok=True)
        downloads = settings.cache_dir / "pip" / repository.key
        downloads.mkdir(parents=True, exist_ok=True)
        limits = sandbox.Limits(settings.build_seconds, settings.memory_bytes, settings.output_bytes)
        result = sandbox.run(
            command,
            directory=home,
            limits=limits,
            network=True,
            files=files_of(settings, writable=(scratch, environment, downloads), readable=(repository.directory,)),
            unsandboxed=settings.allow_unsandboxed,
            on_output=on_output,
            should_stop=should_stop,
            environment={"PIP_CACHE_DIR": str(downloads)},
        )
    if result.outcome == "stopped":
        raise AttemptCancelled("the job was cancelled while it was built")
    if result.outcome != "exited" or result.returncode != 0:
        how = f"exit code {result.returncode}" if result.outcome == "exited" else result.outcome.replace("_", " ")
        shutil.rmtree(environment, ignore_errors=True)
        raise BuildFailed(
            revision,
            key,
            time.monotonic() - began,
            result.tail,
            f"{revision} {sha[:10]}: pip install failed ({how}): {_last_error(result.tail)}",
        )
    return result.tail or "installed without output"


def _prune(settings: Settings) -> None:
    """Removes the builds beyond `kept_builds` that nobody used for a week; none that a measurement may be using."""
    finished = sorted(settings.cache_dir.glob("builds/*/finished"), key=lambda mark: mark.stat().st_mtime, reverse=True)
    for mark in finished[settings.kept_builds :]:
        if time.time() - mark.stat().st_mtime > WEEK_SECONDS:
            mark.unlink()  # first of all: what is removed half way must not count as a build
            shutil.rmtree(mark.parent, ignore_errors=True)


def _last_error(tail: str) -> str:
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["no output"])[-1][:500]


def files_of(settings: Settings, *, writable: tuple[Path, ...], readable: tuple[Path, ...]) -> Files:
    """What code under test finds of this host: of the worker's cache what is named, and the ruler wherever it is."""
    ruler = tuple(Path(path) for path in ruler_facts(settings.ruler_python)["files"])
    return Files(
        writable=writable,
        private=(settings.cache_dir,),
        readable=(*ruler, *readable),
        hidden=settings.hidden(),
    )


@cache
def ruler_facts(python: Path) -> dict[str, Any]:
    """Python, packages, import paths and bundled inputs of the ruler's environment, asked of its own interpreter.

    Raises:
        AttemptFailed: gprojci-suite is not installed there.
    """
    done = subprocess.run([python, "-P", "-c", _FACTS], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AttemptFailed(
            "lost_worker", f"GPROJCI_RULER_PYTHON ({python}) cannot import gprojci_suite: {done.stderr[-500:]}"
        )
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def ruler_versions(python: Path) -> dict[str, Any]:
    """What the pages show of the ruler's environment."""
    facts = ruler_facts(python)
    versions = dict(package.split("==", 1) for package in facts["packages"])
    return {"python": facts["python"].split()[0], "torch": versions.get("torch", ""), "ruler": facts["ruler"]}


@cache
def gpu_architecture(device: str) -> str:
    """Compute capability of the GPU, or nothing on a CPU."""
    if device != "cuda":
        return ""
    return nvidia_smi.query("compute_cap")
