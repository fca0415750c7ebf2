"""`python -m subbit` is `subbit`."""

from subbit.cli.entry import main

main()
