"""Dataclasses as JSON objects: the keys are the fields, in the order of the fields.

A field whose default is None is left out while it is None. A field without a default is always written, as null if it
is None. A mapping in a field with a `PREFIX` is merged into the object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

PREFIX = "prefix"
"""In the metadata of a field: the prefix of each key of its mapping in the object."""


def as_json(value: Any) -> Any:
    """Convert to types that `json.dumps` accepts and `json.loads` returns."""
    if dataclasses.is_dataclass(value):
        found: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if PREFIX in field.metadata:
                found |= {field.metadata[PREFIX] + key: as_json(each) for key, each in item.items()}
            elif item is not None or field.default is not None:
                found[field.name] = as_json(item)
        return found
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list | tuple) else value
