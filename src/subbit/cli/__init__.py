"""The command line. `entry` has the entry point and the commands without a file of their own."""

from subbit.cli.entry import main as main
