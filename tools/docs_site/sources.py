"""The pages that Sphinx reads: `python -m tools.docs_site.sources DIR`.

Documents are unchanged, except for their links: a link to a document is redirected to its page, a
link to another file of the repository to a page with its text. README.md files are the indices of
their folders. CONTENTS is the order of the site.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from tools.docs_site.reference import Reference

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
FENCED = re.compile(r"(^ {0,3}```.*?^ {0,3}```$)", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml"}

# Captions, and the pages below each. `*` represents all pages that no line names.
CONTENTS = {
    "Learn": ["tutorials/index", "migration/index"],
    "How to": [
        "seeing", "checkpoints", "shardings", "logical_axes", "maps", "manual_parallelism",
        "processes", "clusters/index", "targets", "which-machine", "data", "effects", "export",
        "ffi", "compile_cache", "ecosystem", "*",
    ],
    "Reference": ["api/index", "glossary", "notation", "options", "transforms", "collectives",
                  "coverage", "values", "errors/index"],
    "The library": ["architecture", "core_in_one_sitting", "design/index", "CONTRIBUTING",
                    "SECURITY", "CHANGELOG"],
}  # fmt: skip


class Pages:
    """Documents of the repository, and the location of each in the site."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}  # pages with their texts
        self.documents = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
        self.files: dict[Path, str] = {}  # other files that a document links to, and their pages

    def place(self, path: Path) -> str:
        """The page of a file, without its ending."""
        if path.is_dir():
            path = path / "README.md"
        if not path.exists():
            raise SystemExit(f"{path} is linked to, but is not there.")
        inner = path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)
        if path.suffix == ".md":
            return str(inner.with_name("index" if path.stem == "README" else path.stem))
        self.files[path] = str(inner.with_suffix(""))
        return self.files[path]

    def relinked(self, path: Path, text: str) -> str:
        """A document with links between pages; code is unchanged."""
        here = Path(self.place(path)).parent

        def led(found: re.Match[str]) -> str:
            place = self.place((path.parent / found[2]).resolve())
            return f"{found[1]}{os.path.relpath(place, here)}.md{found[3] or ''}{found[4]}"

        parts = FENCED.split(text)
        return "".join(p if i % 2 else LINK.sub(led, p) for i, p in enumerate(parts))

    def make(self) -> None:
        for path in self.documents:
            self._put(self.place(path), self.relinked(path, path.read_text()))
        self._put("core_in_one_sitting", None, DOCS / "core_in_one_sitting.py")
        for path in sorted(self.files):
            self._put(self.files[path], None, path)
        folders = sorted({d.parent for d in self.documents} - {ROOT, DOCS})
        for folder in folders:
            inside = [f for f in self.files if f.parent == folder]
            self._list(folder, inside)
        loose = [f for f in sorted(self.files) if f.parent not in folders and f.parent != DOCS]
        self._front(loose)

    def _put(self, place: str, text: str | None, source: Path | None = None) -> None:
        """A page of a document, or of a file's text."""
        if source is not None:
            language = LANGUAGES.get(source.suffix, "text")
            name = source.relative_to(ROOT)
            text = f"# {name}\n\n````{{code-block}} {language}\n{source.read_text()}\n````\n"
        assert text is not None
        self.made[f"{place}.md"] = text

    def _list(self, folder: Path, files: list[Path]) -> None:
        """Adds the contents of a folder to its index, in the order of the links there."""
        index = (folder / "README.md").read_text()
        order = list(dict.fromkeys([found[2] for found in LINK.finditer(index)]))
        pages = [*sorted(folder.glob("*.md")), *files]
        pages.sort(key=lambda p: order.index(p.name) if p.name in order else len(order))
        names = [Path(self.place(p)).name for p in pages if p.stem != "README"]
        self.made[f"{self.place(folder)}.md"] += _toctree(names, hidden=True)

    def _front(self, loose: list[Path]) -> None:
        """Adds the contents of the site to its first page."""
        named = {page for pages in CONTENTS.values() for page in pages}
        tops = {self.place(p) for p in self.documents if p.parent in (ROOT, DOCS)} - {"index"}
        for caption, pages in CONTENTS.items():
            listed = [q for p in pages for q in (sorted(tops - named) if p == "*" else [p])]
            if caption == "The library":
                listed += [self.files[f] for f in loose]
            self.made["index.md"] += _toctree(listed, caption=caption, hidden=True)


def _toctree(pages: list[str], caption: str = "", hidden: bool = False) -> str:
    options = [f":caption: {caption}"] * bool(caption) + [":hidden:"] * hidden
    return "\n".join(["", "```{toctree}", *options, ":maxdepth: 1", "", *pages, "```", ""])


def main(target: Path) -> None:
    """Writes changed pages, so that Sphinx builds only these, and removes old ones."""
    pages = Pages()
    pages.make()
    made = pages.made | {f"api/{name}": text for name, text in Reference().pages().items()}
    for name, text in made.items():
        page = target / name
        page.parent.mkdir(parents=True, exist_ok=True)
        if not page.exists() or page.read_text() != text:
            page.write_text(text)
    for page in target.rglob("*.*"):
        if str(page.relative_to(target)) not in made:
            page.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
