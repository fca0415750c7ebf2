"""Write the lock files: exact versions of everything that `make` installs, with the hashes of all files of each
release.

    python scripts/lock.py EXTRAS   (make lock; needs the package index, takes some minutes)

pip resolves the ranges of pyproject.toml once, for the current Python and platform. The hashes are those of every file
that the configured indexes list for each version, so they are valid on other platforms too. torch has its own lock
file, because it may come from a folder of wheels (pip's find-links) instead of an index. pip prefers a file with a hash
from an index over one in a folder, so the Makefile looks in folders first.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
TOOLS = ["editables", "pip"]
"""What builds and installs the package itself, besides its build backend."""
LOCK, TORCH_LOCK = ROOT / "requirements.lock", ROOT / "requirements-torch.lock"
HEADING = "# Written by make lock; see docs/dependencies.md.\n"
BEYOND = "# What a platform needs beyond this (CUDA for torch) comes by its range.\n"
OTHERS = [
    {"sys_platform": system, "platform_system": name, "platform_machine": machine, "python_version": version}
    for system, name, machine in [
        ("linux", "Linux", "x86_64"),
        ("linux", "Linux", "aarch64"),
        ("darwin", "Darwin", "arm64"),
    ]
    for version in ("3.11", "3.12")
]


def main(extras: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = resolve([f"{ROOT}[{extras}]", *project["build-system"]["requires"], *TOOLS])
    packages = {canonicalize_name(entry["metadata"]["name"]): entry for entry in found}
    roots = [Requirement(f"subbit[{extras}]"), *map(Requirement, [*project["build-system"]["requires"], *TOOLS])]
    lacking = {describe(other): sorted(closure(roots, packages, other) - set(packages)) for other in OTHERS}
    del packages["subbit"]
    with ThreadPoolExecutor(8) as threads:
        lines = dict(zip(packages, threads.map(lock_line, packages.values()), strict=True))
    torch = lines.pop("torch")
    told = "".join(
        f"# {name}: {'complete' if not names else 'lacks ' + ', '.join(names)}\n" for name, names in lacking.items()
    )
    LOCK.write_text(HEADING + BEYOND + told + "".join(lines[name] for name in sorted(lines)))
    TORCH_LOCK.write_text(HEADING + torch)
    print(f"{len(lines) + 1} packages in {LOCK.name} and {TORCH_LOCK.name}\n{told}", end="")


def resolve(requirements: list[str]) -> list[dict]:
    """The packages that pip would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*command, "--report", str(report), *requirements], check=True)
        return json.loads(report.read_text())["install"]


def lock_line(entry: dict) -> str:
    name, version = entry["metadata"]["name"], entry["metadata"]["version"].partition("+")[0]
    chosen = entry["download_info"]
    digests = {chosen["archive_info"].get("hashes", {}).get("sha256") or file_digest(chosen["url"])}
    for index in indexes():
        digests |= listed_digests(f"{index.rstrip('/')}/{canonicalize_name(name)}/", version)
    return f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(digests)) + "\n"


def file_digest(url: str) -> str:
    return hashlib.sha256(Path(unquote(urlsplit(url).path)).read_bytes()).hexdigest()


def indexes() -> list[str]:
    """The indexes from the pip configuration of this machine: none is named in this file."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    settings = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    values = {key.rpartition(".")[2]: value.strip("'\"") for key, value in settings.items()}
    return [values.get("index-url", PyPI.simple_url), *values.get("extra-index-url", "").split()]


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.urls += [value for key, value in attributes if tag == "a" and key == "href" and value]


def listed_digests(page: str, version: str) -> set[str]:
    """SHA-256 of all files of that version on an index page; empty if there is no such page."""
    address = page + "index.html" if page.startswith("file:") else page
    try:
        with urllib.request.urlopen(address, timeout=180) as answer:
            text = answer.read().decode()
    except (urllib.error.HTTPError, FileNotFoundError) as error:
        if isinstance(error, urllib.error.HTTPError) and error.code != 404:
            raise
        return set()
    except urllib.error.URLError as error:
        if isinstance(error.reason, FileNotFoundError):
            return set()
        raise
    links = Links()
    links.feed(text)
    parted = [urldefrag(url) for url in links.urls]
    return {
        fragment.removeprefix("sha256=")
        for url, fragment in parted
        if fragment.startswith("sha256=") and file_version(unquote(url.rpartition("/")[2])) == version
    }


def file_version(name: str) -> str:
    try:
        version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except ValueError:
        return ""
    return version.public


def describe(other: dict[str, str]) -> str:
    return f"{other['platform_system']} {other['platform_machine']}, Python {other['python_version']}"


def closure(roots: list[Requirement], packages: dict[str, dict], other: dict[str, str]) -> set[str]:
    """Names of all packages that the roots need on another platform, as far as the resolved packages tell."""
    environment = {**default_environment(), **other, "python_full_version": other["python_version"] + ".0"}
    seen: set[tuple[str, str]] = set()
    todo = list(roots)
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for text in packages.get(name, {"metadata": {}})["metadata"].get("requires_dist", []):
                needed = Requirement(text)
                if needed.marker is None or needed.marker.evaluate({**environment, "extra": extra}):
                    todo.append(needed)
    return {name for name, _ in seen}


if __name__ == "__main__":
    main(sys.argv[1])
