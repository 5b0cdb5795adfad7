"""`python -P -m gprojci_suite` is the command gprojci-suite."""

import sys

from gprojci_suite.cli import main

sys.exit(main())
