def init() -> None:
    """Later."""
