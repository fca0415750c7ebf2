"""Configuration of a run: `schema` has the keys, `values` reads them, `load` puts defaults, preset, file and words
together.

Imports nothing: methods use `values`, and `load` uses the methods.
"""
