"""The command line. `entry` has the entry point and the commands without a file of their own."""


def main() -> None:
    """Imported by every worker process, as the main module of its parent, so the commands are imported only here."""
    from subbit.cli.entry import main as entry

    entry()
