"""Assembles what a page shows of a suite report, wherever it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gprojci_service.pages import report_checks, report_parts, report_roofline, report_timing
from gprojci_service.pages.report_choices import Shown
from gprojci_service.pages.schemas import ReportView
from gprojci_suite.contract.report import Report


def view(
    report: Report,
    shown: Shown,
    policy: Mapping[str, Any] | None,
    choices: Mapping[str, str],
    base_sha: str | None,
) -> ReportView:
    """Every part of the report that is shown; further `choices` come from the address, limits from `policy`."""
    accuracy = report_parts.accuracy(report, shown, policy)
    found = (
        report_timing.pareto(report, shown, policy),
        report_timing.throughput(report, shown, policy),
        report_roofline.section(report, shown),
        report_timing.step(report, policy),
        report_checks.surface(report, policy, choices),
        report_checks.symmetry(report, policy, choices),
        report_checks.determinism(report, choices),
    )
    sections = tuple(section for section in found if section is not None)
    chosen = {choice.name: choice.chosen for section in sections for choice in section.choices}
    if accuracy is not None:
        chosen |= {"input": accuracy.input, "tensor": accuracy.tensor}
    return ReportView(
        failed=report_parts.failed(report),
        repro=report.repro,
        accuracy=accuracy,
        sections=sections,
        environment=report_parts.environment(report, base_sha),
        gpu=report_parts.gpu_states(report),
        slowed_by=report_parts.slowed_by(report),
        choices=chosen,
    )
