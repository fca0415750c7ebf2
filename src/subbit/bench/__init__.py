"""Benchmarks that come with the library: `subbit bench codecs`. Imports nothing: the command line imports this package."""
