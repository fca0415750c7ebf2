"""Tables of single papers."""
