"""Input sets: by name, file path, content hash, or synthesised from a name with parameters."""

from gprojci_suite.contract.bundled import names as bundled_names
from gprojci_suite.inputs.catalogue import load
from gprojci_suite.inputs.sets import InputError, InputSet, LayerTensors

__all__ = ["InputError", "InputSet", "LayerTensors", "bundled_names", "load"]
