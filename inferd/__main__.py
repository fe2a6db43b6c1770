"""`python -m inferd` is the same as `inferd`."""

from inferd.cli import main

main()
