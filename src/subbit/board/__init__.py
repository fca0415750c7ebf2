"""`subbit board`: a local page that lists runs and follows those in progress."""
