"""Performs the steps of a build file in a clean root file system, where no container engine is at hand.

    sudo python docker/perform.py docker/service.Dockerfile --check "gprojci --version"
    sudo python docker/perform.py docker/worker.Dockerfile --build-arg BASE=debian:12.11-slim

Base images stand for what debootstrap makes of the same release, with the distribution's own Python where the image
brings one; so this proves the steps and not the image's content. Each RUN is a chroot in namespaces of its own. The
checks run as the image's user, without capabilities, on a read-only root with a tmpfs at /tmp: as compose runs it.
Needs Linux, root, debootstrap, util-linux and the network.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
CACHE = Path("/var/cache/gprojci-perform")
MIRROR = "http://deb.debian.org/debian"
# Image: release of Debian, and what it has beside the release's minimal system.
BASES = {
    r"python:3\.\d+\.\d+-slim-(\w+)": ["python3", "python3-venv", "ca-certificates"],
    r"debian:12(\.\d+)?-slim": ["ca-certificates"],
}
KNOWN = ("FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "CMD", "EXPOSE", "VOLUME")
NUMBERS = {"12": "bookworm", "13": "trixie"}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Stage:
    """A stage of the build: its root, and what its instructions have set so far."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": DEFAULT_PATH})
    arguments: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0"


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a build file, continued lines joined, comments left out."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
    lines = (line.strip() for line in joined.splitlines())
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines if line)]


def expand(text: str, known: dict[str, str]) -> str:
    """`$NAME`, `${NAME}` as the builder replaces them outside of RUN."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], ""), text)


def base(image: str, target: Path, cache: Path) -> None:
    """Makes the root file system that stands for an image, from a kept one where it was made before."""
    known = [(found, packages) for pattern, packages in BASES.items() if (found := re.fullmatch(pattern, image))]
    if not known:
        sys.exit(f"{image}: none of {', '.join(BASES)}; name another with --build-arg")
    found, packages = known[0]
    release = found[1] if image.startswith("python") else NUMBERS[image.split(":")[1][:2]]
    kept = cache / f"{release}-{'-'.join(packages)}"
    if not kept.exists():
        made = cache / f"{kept.name}.part"
        shutil.rmtree(made, ignore_errors=True)
        say(f"debootstrap {release} for {image}")
        run(["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release, str(made), MIRROR])
        made.rename(kept)
    run(["cp", "-a", "--reflink=auto", str(kept), str(target)])
    if image.startswith("python"):
        (target / "usr/local/bin/python").symlink_to("/usr/bin/python3")


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def run(command: list[str], **options: object) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)  # type: ignore[call-overload]
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-3000:]}\n{shlex.join(command)[:300]}: exit code {done.returncode}")


# In namespaces of its own: /proc, /dev and the shared directories are mounted, and gone with the process.
_INSIDE = """
set -e
root=$1; shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
cp --dereference /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
for shared in $SHARED; do mkdir -p "$root$shared"; mount --rbind -o ro "$shared" "$root$shared"; done
if [ -n "$READ_ONLY" ]; then
    mount --bind "$root" "$root"; mount -o remount,bind,ro "$root"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"; mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"
    for shared in $SHARED; do mount --rbind -o ro "$shared" "$root$shared"; done
fi
exec chroot "$root" "$@"
"""


def enter(stage: Stage, command: list[str], shared: list[str], *, as_built: bool) -> None:
    """Runs a command in a stage's root; `as_built`: as compose runs the image, else as the builder does."""
    variables = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    variables |= {**stage.arguments, **stage.environment, "SHARED": " ".join(shared)}
    variables["READ_ONLY"] = "yes" if as_built else ""
    inner = ["sh", "-c", f'cd {shlex.quote(stage.directory)} && exec "$@"', "sh", *command]
    if as_built:
        # chroot needs a capability that setpriv takes away, so setpriv is run inside.
        confined = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", f"--reuid={stage.user}"]
        inner = [*confined, f"--regid={stage.user}", "--clear-groups", *inner]
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts"]
    run([*apart, "bash", "-c", _INSIDE, "bash", str(stage.root), *inner], env=variables)


def copy(stage: Stage, rest: str, stages: dict[str, Stage]) -> None:
    words = shlex.split(expand(rest, stage.arguments | stage.environment))
    source_root, ignored = ROOT, (ROOT / ".dockerignore").read_text().splitlines()
    if words[0].startswith("--from="):
        source_root, ignored = stages[words.pop(0).removeprefix("--from=")].root, []
    *sources, target = words
    there = stage.root / str(Path(stage.directory, target)).lstrip("/")
    for source in sources:
        path = source_root / source.lstrip("/")
        if not path.exists():
            sys.exit(f"COPY {source}: does not exist in {source_root}")
        if ignored and not any(fnmatch.fnmatch(source, line[1:]) for line in ignored if line.startswith("!")):
            sys.exit(f"COPY {source}: .dockerignore leaves it out")
        without = [line.removeprefix("**/") for line in ignored if line.startswith("**/")]
        if path.is_dir():
            keep = shutil.ignore_patterns(*without) if ignored else None
            shutil.copytree(path, there, symlinks=True, ignore=keep, dirs_exist_ok=True)
        else:
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, there / path.name if target.endswith("/") else there)


def perform(file: Path, given: dict[str, str], work: Path, cache: Path, shared: list[str]) -> Stage:
    """All instructions of a build file; the last stage."""
    stages: dict[str, Stage] = {}
    defaults: dict[str, str] = {}
    stage = Stage(work)
    for number, (word, rest) in enumerate(instructions(file.read_text()), 1):
        say(f"{number} {word} {rest[:110]}")
        known = stage.arguments | stage.environment
        if word == "FROM":
            image, _, name = expand(rest, defaults | given).partition(" AS ")
            stage = Stage(work / f"stage-{len(stages)}")
            stages[name.strip() or str(len(stages))] = stage
            base(image.strip(), stage.root, cache)
        elif word == "ARG":
            name, _, default = rest.partition("=")
            (stage.arguments if stages else defaults)[name] = given.get(name, default)
        elif word == "ENV":
            for pair in shlex.split(rest):
                name, _, value = pair.partition("=")
                stage.environment[name] = expand(value, known)
        elif word == "WORKDIR":
            stage.directory = str(Path(stage.directory, expand(rest, known)))
            (stage.root / stage.directory.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            copy(stage, rest, stages)
        elif word == "RUN":
            enter(stage, ["sh", "-c", rest], shared, as_built=False)
        elif word == "USER":
            stage.user = rest
        elif word == "CMD":
            program = json.loads(rest)[0]
            enter(stage, ["sh", "-c", f"command -v {shlex.quote(program)}"], shared, as_built=True)
        elif word not in KNOWN:
            sys.exit(f"{file}: {word} is not known here")
    return stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument(
        "--check", action="append", default=[], metavar="COMMAND", help="run in the end as the image is"
    )
    parser.add_argument("--shared", action="append", default=[], metavar="PATH", help="of this host, to be seen inside")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where base systems are kept")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gprojci-perform-", dir=options.cache))
    try:
        given = dict(pair.split("=", 1) for pair in options.build_arg)
        stage = perform(options.file, given, work, options.cache, options.shared)
        for command in options.check:
            say(f"check: {command}")
            enter(stage, ["sh", "-c", command], options.shared, as_built=True)
        size = subprocess.run(["du", "-sm", stage.root], capture_output=True, text=True, check=True).stdout.split()[0]
        say(f"{options.file}: every step done, {len(options.check)} checks passed, {size} MB")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
