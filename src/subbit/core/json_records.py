"""Dataclasses as JSON objects: what a run writes for others to read has the keys that its types say, in their order.

A field whose default is None is a key that is left out where there is nothing to say. One without a default is always
written, as null if it may be None and is. A mapping in a field with a `PREFIX` becomes keys of the object itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

PREFIX = "prefix"
"""In the metadata of a field: what stands before each key of its mapping in the object."""


def as_json(value: Any) -> Any:
    """What `json.dumps` takes and `json.loads` gives back."""
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
