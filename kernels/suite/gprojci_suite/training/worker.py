"""The process of one run: `python -m gprojci_suite.training.worker SETTINGS PARENT`, SETTINGS written by the parent."""

import sys
from pathlib import Path

import torch

from gprojci_suite.child import die_with_parent
from gprojci_suite.contract import codec
from gprojci_suite.contract.training import TrainingRun
from gprojci_suite.contract.vocabulary import TrainingStatus
from gprojci_suite.ending import Ending
from gprojci_suite.entry import Refused, classify, describe
from gprojci_suite.training import files
from gprojci_suite.training.run import Run, RunSettings, not_trained


def main(settings_file: str, parent: str) -> None:
    """Train, and leave the result in the folder of the run."""
    die_with_parent(int(parent))
    settings = codec.decode(RunSettings, codec.loads(Path(settings_file).read_text()))
    torch.set_num_threads(settings.threads)
    with Ending(settings.seconds).on_signals() as ending:
        print("loading", flush=True)
        run = None
        try:
            run = Run(settings, lambda line: print(line, flush=True))
            run.train(ending)
        # Whatever a backend raises is this run's result, and no other's.
        except Exception as error:  # noqa: BLE001
            print(describe(error), flush=True)
            files.save_run(Path(settings.folder), _failed(settings, run, error))


def _failed(settings: RunSettings, run: Run | None, error: Exception) -> TrainingRun:
    found, detail = (error.status, error.detail) if isinstance(error, Refused) else (classify(error), describe(error))
    status: TrainingStatus = "unsupported" if found == "unsupported" else "failed"
    if run is None:
        return not_trained(settings.backend, settings.seed, status, detail)
    return run.broken_off(status, detail)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
