"""Configuration of a run: frozen dataclasses, TOML and `key=value`."""

from subbit.config.load import Settings, read_toml, resolve, write_toml
from subbit.config.schema import RunConfig

__all__ = ["RunConfig", "Settings", "read_toml", "resolve", "write_toml"]
