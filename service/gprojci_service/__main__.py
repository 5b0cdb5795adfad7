"""`python -m gprojci_service`: the command `gprojci`."""

from gprojci_service.cli import main

main()
