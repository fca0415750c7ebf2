"""Before the first run: what this machine has (`subbit doctor`), and a first job for your data (`subbit init`)."""
