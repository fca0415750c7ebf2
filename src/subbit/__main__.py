"""`python -m subbit` is `subbit`."""

from subbit.cli.main import main

main()
