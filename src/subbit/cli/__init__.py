"""The command line. `entry` has the entry point and the commands that need no file of their own."""

from subbit.cli.entry import main as main
