"""What every method, codec and aggregator must do, ours and yours: `subbit check my_method.py`.

A law is a function that raises `LawError` where it does not hold. The tests of this library run the same functions.
"""

from subbit.conformance.laws import Law, LawError, laws_of

__all__ = ["Law", "LawError", "laws_of"]
