"""Configuration of a run: `schema` defines its keys, `resolve` combines defaults, preset, file and command line."""
