"""What ruler, workers and service agree on: spec, report and manifest. Imports the standard library only."""

from gprojci_suite.contract.errors import ContractError, ManifestError
from gprojci_suite.contract.manifest import Manifest
from gprojci_suite.contract.report import Report
from gprojci_suite.contract.spec import RunSpec

__all__ = ["ContractError", "Manifest", "ManifestError", "Report", "RunSpec"]
