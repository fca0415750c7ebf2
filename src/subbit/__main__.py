"""Run `python -m subbit` as an alias of the `subbit` command."""

from subbit.cli.entry import main

main()
