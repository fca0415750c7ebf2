"""What a run leaves behind: files, tables, plots."""
