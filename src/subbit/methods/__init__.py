"""Federated methods, one file each; `names` lists them, `method` defines the base class."""
