"""`subbit bench codecs`, `engine`, `flower` and `scaling`."""
