"""`subbit bench codecs` and `subbit bench flower`."""
