"""Make the pages of the site from those of docs/, for `make site`: links out of docs/, root pages, equations.

    python scripts/site_pages.py .site/pages      # then mkdocs builds that folder
    python scripts/site_pages.py --requirements   # what it takes to build the site

Pages are written to be read in the repository too. There a link such as `../examples/own_loss.py` leads to the file; on
the site it leads to the repository, if pyproject.toml names one (`Repository` in `[project.urls]`), and else is text.
Equations are TeX between lines of `$$` and become MathML, which browsers show without a script.

This is not a plugin of mkdocs, so that another generator can build the same folder.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md"}
"""Files beside docs/ that are pages of the site, and where."""
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
EQUATION = re.compile(r"^\$\$\n(?P<tex>.*?)\n\$\$$", re.DOTALL | re.MULTILINE)


def project() -> dict[str, dict[str, object]]:
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


def repository() -> str | None:
    urls = project().get("urls", {})
    return next((str(url).rstrip("/") for name, url in urls.items() if name.lower() in ("repository", "source")), None)


def linked(markdown: str, page: str, home: str | None) -> str:
    """The text of a page with its links as they are on the site; `home` is the address of the repository."""
    source = next((file for file, name in ROOT_PAGES.items() if name == page), f"docs/{page}")

    def changed(link: re.Match[str]) -> str:
        path, mark, anchor = link["target"].partition("#")
        if not path or ":" in path:
            return link[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        inside = file.removeprefix("docs/") if file.startswith("docs/") else ROOT_PAGES.get(file)
        if inside is not None:
            target = posixpath.relpath(inside, posixpath.dirname(page) or ".") + mark + anchor
        elif home is not None:
            target = f"{home}/blob/main/{file}{mark}{anchor}"
        else:
            return link["text"]
        return f"{link['image']}[{link['text']}]({target})"

    pieces = FENCE.split(markdown)
    return "".join(piece if at % 2 else LINK.sub(changed, piece) for at, piece in enumerate(pieces))


def with_mathml(markdown: str) -> str:
    def mathml(equation: re.Match[str]) -> str:
        from latex2mathml.converter import convert

        made = convert(equation["tex"], display="block")
        if "\\" in made:  # A command that it does not know is shown as it stands.
            raise ValueError(f"this equation cannot be made into MathML: {equation['tex']}")
        return f'<div class="equation">{made}</div>'

    return EQUATION.sub(mathml, markdown)


def write_pages(folder: Path) -> None:
    """All of docs/ and the root pages; the folder is ours and is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for file, page in ROOT_PAGES.items():
        shutil.copyfile(ROOT / file, folder / page)
    home = repository()
    for path in sorted(folder.rglob("*.md")):
        page = path.relative_to(folder).as_posix()
        try:
            path.write_text(with_mathml(linked(path.read_text(), page, home)))
        except ValueError as error:
            raise SystemExit(f"{page}: {error}") from None


if __name__ == "__main__":
    if sys.argv[1:] == ["--requirements"]:
        print("\n".join(map(str, project()["optional-dependencies"]["docs"])))  # type: ignore[call-overload]
    elif len(sys.argv) == 2:
        write_pages(Path(sys.argv[1]))
    else:
        raise SystemExit(__doc__)
