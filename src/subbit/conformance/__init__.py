"""Conformance suite for methods, codecs and aggregators, ours and yours: `subbit check my_method.py`.

A law is a function that raises `LawError` if it does not hold. This library's tests run the same functions.
"""

from subbit.conformance.laws import Law, LawError, laws_of

__all__ = ["Law", "LawError", "laws_of"]
