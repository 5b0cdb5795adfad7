"""One attempt, as its five steps: claim, fetch, build, run, report."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

from gprojci_suite.contract import RunSpec
from gprojci_suite.contract.manifest import Manifest
from gprojci_suite.contract.vocabulary import Device, SubjectRevision
from gprojci_workers import build, device_lock, fingerprint, logs, plan, sandbox
from gprojci_workers.api import Api, ServiceRefused, ServiceUnreachable
from gprojci_workers.build import BuildFailed, Built
from gprojci_workers.checkout import Commit, Repository
from gprojci_workers.failure import AttemptCancelled, AttemptFailed
from gprojci_workers.inputs import Inputs
from gprojci_workers.lifeline import Lifeline
from gprojci_workers.settings import Settings

logger = logging.getLogger(__name__)

REPORT_PATIENCE = 1800.0
KNOWN_PATIENCE = 60.0
GIVE_BACK_PATIENCE = 3.0  # whoever stops it waits; without an answer the lease runs out
LEAST_FREE_BYTES = 16 * 1024 * 1024
"""With less than this of GPROJCI_CACHE_DIR's disk the disk counts as full."""
REPORT_BYTES = 512 * 2**20
"""More than any service takes; read whole, so it must fit into memory."""


def measure(settings: Settings, api: Api, job_id: int | None, stopping: Callable[[], bool] = lambda: False) -> None:
    """Does one attempt from claim to report; does nothing where no work waits.

    Args:
        stopping: whether this worker is to end; the attempt is then handed back.
    """
    claimed = api.claim(job_id)
    if claimed is None:
        logger.info("nothing waits for %s", settings.hardware)
        return
    logs.note(job=claimed["job"]["id"], attempt=claimed["attempt"]["number"])
    logger.info("claimed: %s %s", claimed["project"]["name"], claimed["job"]["head_sha"])
    scratch = _scratches(settings) / str(claimed["attempt"]["id"])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with Lifeline(api, claimed["attempt"], stopping) as lifeline:
            try:
                outcome = Attempt(settings, api, claimed, lifeline, scratch).perform()
                report(api, claimed, lifeline, outcome)
            except AttemptCancelled as cancelled:
                if lifeline.is_ours and stopping():
                    give_back(settings, api, claimed, lifeline)
                else:
                    logger.info("attempt %d ends: %s", claimed["attempt"]["id"], cancelled)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        logs.note()


def clear_scratches(settings: Settings) -> None:
    """Removes what killed attempts of this worker have left on the disk."""
    shutil.rmtree(_scratches(settings), ignore_errors=True)


def _scratches(settings: Settings) -> Path:
    return settings.cache_dir / "attempts" / settings.worker_name


def give_back(settings: Settings, api: Api, claimed: dict[str, Any], lifeline: Lifeline) -> None:
    """Hands the attempt back, so that another worker need not wait for its lease to end."""
    attempt_id, reason = claimed["attempt"]["id"], f"handed back: {settings.worker_name} was told to stop"
    lifeline.log(f"{reason}\n")
    lifeline.flush_all()
    body = {"fencing_token": lifeline.fencing_token, "reason": reason}
    api.give_back(attempt_id, body, patience=GIVE_BACK_PATIENCE)
    logger.info("attempt %d: %s", attempt_id, reason)


def report(api: Api, claimed: dict[str, Any], lifeline: Lifeline, outcome: dict[str, Any]) -> None:
    """Sends the outcome until it is acknowledged; one that the service finds malformed is reported as a failure."""
    attempt_id = claimed["attempt"]["id"]
    lifeline.flush_all()
    body = {"fencing_token": lifeline.fencing_token, "steps": lifeline.steps, **outcome}
    try:
        answer = api.report(attempt_id, body, patience=REPORT_PATIENCE)
    except ServiceRefused as refused:
        logger.error("the report of attempt %d is refused: %s", attempt_id, refused)
        body |= {"status": "runtime_error", "detail": f"the service refused the report: {refused}", "report": None}
        answer = api.report(attempt_id, body, patience=REPORT_PATIENCE)
    except ServiceUnreachable as error:
        raise AttemptCancelled(f"the report could not be delivered: {error}") from error
    logger.info(
        "attempt %d: %s: %s", attempt_id, "accepted" if answer["accepted"] else "not accepted", answer["reason"]
    )


class Attempt:
    """What an attempt knows while its steps are done."""

    def __init__(
        self, settings: Settings, api: Api, claimed: dict[str, Any], lifeline: Lifeline, scratch: Path
    ) -> None:
        self.settings, self.api, self.attempt_id = settings, api, int(claimed["attempt"]["id"])
        self.device = cast(Device, settings.device)
        self.job = claimed["job"]
        self.lifeline = lifeline
        self.scratch = scratch
        self.deadline = time.monotonic() + float(claimed["attempt"]["hard_limit_seconds"])
        project = claimed["project"]
        self.repository = Repository(
            settings.cache_dir,
            project["clone_url"],
            project["clone_token"],
            private_network=settings.private_repositories,
        )
        self.inputs = Inputs(settings, api, scratch, lifeline.log, lifeline.should_stop)
        self.builds: list[dict[str, Any]] = []
        self.manifests: dict[str, str | None] = {"head": None, "base": None}

    def perform(self) -> dict[str, Any]:
        """Fetches, builds and runs; returns the body of the report, for a failure as for a measurement.

        Raises:
            AttemptCancelled: the service no longer wants it.
        """
        outcome: dict[str, Any]
        try:
            with self.lifeline.step("fetch"):
                head, base = self.fetch()
            with self.lifeline.step("build"):
                manifests, built = self.build(head, base)
            outcome = self.measure(head, base, manifests, built)
        except AttemptFailed as failure:
            failure = self._of_this_host(failure)
            self.lifeline.log(f"{failure}\n")
            outcome = {"status": failure.kind, "detail": failure.detail[:20_000], "report": None}
        except (OSError, subprocess.SubprocessError) as error:
            # A full disk, a missing or failing tool: this host's fault, another try may do.
            logger.exception("attempt of job %d", self.job["id"])
            outcome = {"status": "lost_worker", "detail": f"{type(error).__name__}: {error}", "report": None}
        return {**outcome, "builds": self.builds, "manifests": self.manifests}

    def _of_this_host(self, failure: AttemptFailed) -> AttemptFailed:
        """A build or a run that fails on a full disk says nothing of the commit: another try may do."""
        free = shutil.disk_usage(self.settings.cache_dir).free
        if failure.kind not in ("build_error", "runtime_error") or free >= LEAST_FREE_BYTES:
            return failure
        return AttemptFailed("lost_worker", f"{self.settings.cache_dir} has {free} bytes left: {failure.detail}")

    def fetch(self) -> tuple[Commit, Commit | None]:
        """Brings the commits here and finds what the head is measured against."""
        pull_request = self.job["pull_request"]
        self.repository.fetch(
            self.job["head_sha"], self.job["base_sha"], pull_request["number"] if pull_request else None
        )
        head, base = self.repository.resolve(self.job["head_sha"], self.job["base_sha"])
        self.manifests = {
            "head": self.repository.manifest(head.sha),
            "base": self.repository.manifest(base.sha) if base else None,
        }
        self.lifeline.resolved({"head": head.to_json(), "base": base.to_json() if base else None})
        self.lifeline.log(f"head {head.sha} {head.message.splitlines()[0] if head.message else ''}\n")
        self.lifeline.log(
            f"base {base.sha} {base.message.splitlines()[0] if base.message else ''}\n"
            if base
            else "base: none, this is the first commit\n"
        )
        return head, base

    def build(
        self, head: Commit, base: Commit | None
    ) -> tuple[dict[SubjectRevision, Manifest], dict[SubjectRevision, Built]]:
        """Builds the head and, where it can be built, the base, and fetches the inputs that both ask for; a base that
        cannot be built is left out and named in the log."""
        device = self.device
        manifests: dict[SubjectRevision, Manifest] = {
            "head": plan.read_manifest(self.manifests["head"], revision="head", sha=head.sha, device=device)
        }
        self.inputs.provide(manifests["head"].accuracy.inputs)
        built: dict[SubjectRevision, Built] = {"head": self._build_one("head", head, manifests["head"])}
        if base is not None and self.manifests["base"] is not None:
            try:
                manifests["base"] = plan.read_manifest(
                    self.manifests["base"], revision="base", sha=base.sha, device=device
                )
                built["base"] = self._build_one("base", base, manifests["base"])
            except AttemptFailed as failure:
                self.lifeline.log(f"{failure}\n")
        if "base" in manifests:  # its inputs are measured even where it cannot be built
            self.inputs.provide(manifests["base"].accuracy.inputs)
        if base is not None and "base" not in built:
            self.lifeline.log("the base could not be built: the head is measured without it\n")
        return manifests, built

    def _build_one(self, revision: str, commit: Commit, manifest: Manifest) -> Built:
        try:
            built = build.build(
                self.settings,
                self.repository,
                revision=revision,
                sha=commit.sha,
                recipe=manifest.build,
                scratch=self.scratch,
                on_output=self.lifeline.log,
                should_stop=self.lifeline.should_stop,
            )
        except BuildFailed as failure:
            self.builds.append(failure.build)
            raise
        self.builds.append(built.to_json())
        return built

    def measure(
        self,
        head: Commit,
        base: Commit | None,
        manifests: dict[SubjectRevision, Manifest],
        built: dict[SubjectRevision, Built],
    ) -> dict[str, Any]:
        """Has the ruler measure, or takes over what was measured before; the part of the report that says so."""
        spec = self.plan(head, base, manifests, built)
        mark = fingerprint.fingerprint(self.settings, spec, self.inputs.hashes(spec.inputs))
        outcome: dict[str, Any] = {"status": "measured", "fingerprint": mark, "same_as": self.measured_before(mark)}
        if outcome["same_as"] is None:
            with self.lifeline.step("run"), self.device_to_itself():
                outcome["report"] = self.run(spec)
        return outcome

    def plan(
        self,
        head: Commit,
        base: Commit | None,
        manifests: dict[SubjectRevision, Manifest],
        built: dict[SubjectRevision, Built],
    ) -> RunSpec:
        """What the ruler is to measure."""
        commits: dict[SubjectRevision, str] = {"head": head.sha, **({"base": base.sha} if base else {})}
        return plan.make_spec(
            manifests["head"],
            manifests.get("base"),
            built,
            commits,
            device=self.device,
            input_directory=self.inputs.directory,
            seconds=self.deadline - time.monotonic(),
            effort=self.job["effort"],
        )

    def measured_before(self, mark: str) -> int | None:
        """The report of the very same measurement, where the service has one that may be taken over."""
        body = {"fencing_token": self.lifeline.fencing_token, "fingerprint": mark}
        try:
            found = self.api.known(self.attempt_id, body, patience=KNOWN_PATIENCE)
        except (ServiceRefused, ServiceUnreachable) as error:
            logger.warning("attempt %d: %s; it is measured", self.attempt_id, error)
            return None
        if found["report_id"] is not None:
            self.lifeline.log(f"the very same was measured by job {found['job_id']}: its report is taken over\n")
        return None if found["report_id"] is None else int(found["report_id"])

    def device_to_itself(self) -> AbstractContextManager[None]:
        """Waits for this host's other workers that measure on the same GPU."""
        left = self.deadline - time.monotonic()
        log, stop = self.lifeline.log, self.lifeline.should_stop
        return device_lock.hold(self.device, self.settings.lock_dir, seconds=left, log=log, should_stop=stop)

    def run(self, spec: RunSpec) -> dict[str, Any]:
        """Has the ruler measure everything in one session and returns its report."""
        left = self.deadline - time.monotonic()
        spec_file, report_file, home = self.scratch / "spec.json", self.scratch / "report.json", self.scratch / "home"
        home.mkdir()
        compiled = self._compiled_kernels()
        spec_file.write_text(spec.dumps())
        result = sandbox.run(
            [str(self.settings.ruler_python), "-P", "-m", "gprojci_suite", "run", str(spec_file), str(report_file)],
            directory=home,
            network=False,
            files=build.files_of(
                self.settings,
                writable=(self.scratch, *compiled.values()),
                readable=(*(Path(subject.site) for subject in spec.subjects), *self.inputs.files()),
            ),
            unsandboxed=self.settings.allow_unsandboxed,
            environment={name: str(directory) for name, directory in compiled.items()},
            on_output=self.lifeline.log,
            should_stop=self.lifeline.should_stop,
            limits=sandbox.Limits(left, self.settings.memory_bytes, self.settings.output_bytes),
        )
        if result.outcome == "stopped":
            raise AttemptCancelled("the job was cancelled while it was measured")
        if result.outcome in ("timeout", "out_of_memory"):
            raise AttemptFailed(
                result.outcome, f"the suite was killed: {result.outcome.replace('_', ' ')}\n{result.tail}"
            )
        if result.outcome == "output_limit":
            raise AttemptFailed("runtime_error", f"the suite printed more than {self.settings.output_bytes} bytes")
        if result.outcome == "too_many_processes":
            raise AttemptFailed("runtime_error", f"the suite began too many processes\n{result.tail}")
        if not report_file.exists():
            raise AttemptFailed(
                "runtime_error",
                f"the suite ended with exit code {result.returncode}: {_last_line(result.tail)}\n{result.tail}",
            )
        return read_report(report_file)

    def _compiled_kernels(self) -> dict[str, Path]:
        """This project's own directories of compiled kernels, by variable, where the host keeps such."""
        kept = {name: Path(os.environ[name]) / self.repository.key for name in sandbox.COMPILED if os.environ.get(name)}
        for directory in kept.values():
            directory.mkdir(parents=True, exist_ok=True)
        return kept


def read_report(file: Path) -> dict[str, Any]:
    """What the sandbox left as its report, of which nothing can be trusted: neither that it is a file nor its length.

    Raises:
        AttemptFailed: `runtime_error`: it is no report.
    """
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise AttemptFailed("runtime_error", "the suite's report is not a regular file")
            content = opened.read(REPORT_BYTES + 1)
    except OSError as error:
        raise AttemptFailed("runtime_error", f"the suite's report cannot be read: {error.strerror}") from error
    if len(content) > REPORT_BYTES:
        raise AttemptFailed("runtime_error", f"the suite's report is longer than {REPORT_BYTES} bytes")
    try:
        report = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AttemptFailed("runtime_error", f"the suite's report is not JSON: {error}") from error
    if not isinstance(report, dict):
        raise AttemptFailed("runtime_error", "the suite's report is not a JSON object")
    return report


def _last_line(tail: str) -> str:
    lines = [line for line in tail.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
