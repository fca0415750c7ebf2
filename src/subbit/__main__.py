"""`python -m subbit` is `subbit`."""

from subbit.cli import main

main()
