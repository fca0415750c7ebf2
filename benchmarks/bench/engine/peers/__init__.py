"""The same jobs as others would run them. Nothing here imports subbit: pfl has an environment of its own."""
