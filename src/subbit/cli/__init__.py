"""The command line: `main` has the entry point."""
