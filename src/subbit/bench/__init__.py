"""Benchmarks that come with the library: `subbit bench codecs`. Imports nothing, as the command line imports it."""
