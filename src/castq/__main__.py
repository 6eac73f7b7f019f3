"""`python -m castq` is the program `castq`."""

from castq.cli import main

main()
