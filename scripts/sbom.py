"""Write the installed packages as a software bill of materials: CycloneDX 1.5, JSON.

    python scripts/sbom.py sbom.json

The file does not depend on when it is written: the same packages give the same file.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "subbit"


def main(path: Path) -> None:
    installed = {canonicalize_name(found.metadata["Name"]): found for found in distributions()}
    addresses = {name: f"pkg:pypi/{name}@{found.version}" for name, found in installed.items()}
    listed = sorted(installed.items())
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(addresses[PROJECT], installed[PROJECT], "application")},
        "components": [component(addresses[name], found) for name, found in listed if name != PROJECT],
        "dependencies": [{"ref": addresses[name], "dependsOn": needs(found, addresses)} for name, found in listed],
    }
    path.write_text(json.dumps(bill, indent=2) + "\n", encoding="utf-8")
    print(f"{len(installed)} packages in {path}")


def component(address: str, found: Distribution, kind: str = "library") -> dict[str, Any]:
    described = {"type": kind, "bom-ref": address, "purl": address}
    described |= {"name": found.metadata["Name"], "version": found.version}
    licence = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
    name = licence.strip().partition("\n")[0]  # Some packages put the whole licence text here.
    return described | ({"licenses": [{"license": {"name": name}}]} if name else {})


def needs(found: Distribution, addresses: dict[str, str]) -> list[str]:
    """The installed packages among all possible requirements, extras included."""
    names = {canonicalize_name(Requirement(text).name) for text in found.requires or []}
    return sorted(addresses[name] for name in names if name in addresses)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
