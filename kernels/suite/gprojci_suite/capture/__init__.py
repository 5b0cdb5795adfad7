"""Capture your own: records q, k, v and do of chosen attention calls and steps of a training loop; `watch` warns.

```python
from gprojci_suite.capture import capture

with capture("captures", name="run7", layers=[0, 3], steps=range(0, 4001, 200), heads=4, choose="error") as recorder:
    for step in range(4001):
        recorder.step(step)  # before the forward pass
        train(step)
```
"""

from gprojci_suite.capture.recorder import CaptureError, CaptureWarning, Recorder, capture
from gprojci_suite.capture.targets import Target
from gprojci_suite.capture.watcher import Reading, Watcher, watch

__all__ = ["CaptureError", "CaptureWarning", "Reading", "Recorder", "Target", "Watcher", "capture", "watch"]
