"""Write the tables of docs/readers.md from what the runs of tests/real wrote (SHARDTOOL_READERS=FILE).

    python scripts/write_reader_table.py FILE... [--page docs/readers.md]

`make real` does it all.
"""

import argparse
import json
import pathlib

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "readers.md"
BEGIN, END = "<!-- begin: written by scripts/write_reader_table.py -->\n", "<!-- end -->\n"
TARS = ("plain", "prefixed", "long (GNU)", "spaced", "non-ASCII")
RECORDS = ("Example", "raw")


def tables(rows: list[dict]) -> str:
    """Markdown: a line for each reader and export, a column for each kind of names or records."""
    text = ["", *table(rows, TARS, "tar"), "", *table(rows, RECORDS, "TFRecord"), ""]
    return "\n".join(text)


def table(rows: list[dict], flavours: tuple[str, ...], what: str) -> list[str]:
    """One table; a cell is 'right / all', summed where a test ran more than once."""
    cells: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for row in rows:
        if row["flavour"] in flavours:
            line = cells.setdefault((row["reader"], row["export"], row["release"]), {})
            sums = line.setdefault(row["flavour"], [0, 0])
            sums[0] += row["right"]
            sums[1] += row["all"]
    head = [f"reader of {what}", "release", "by the export", *flavours]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (reader, export, release), line in sorted(cells.items(), key=lambda item: (item[0][0].lower(), item[0][1:])):
        shown = [f"{line[name][0]} / {line[name][1]}" if name in line else "" for name in flavours]
        lines.append("| " + " | ".join([reader, release, export or "none", *shown]) + " |")
    return lines


def written(page: str, rows: list[dict]) -> str:
    """The page with new tables."""
    before, found, rest = page.partition(BEGIN)
    _, also, after = rest.partition(END)
    if not found or not also:
        raise SystemExit("the page has no place for the tables")
    return before + BEGIN + tables(rows) + END + after


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path, default=PAGE)
    options = parser.parse_args()
    rows = [row for file in options.files for row in json.loads(file.read_text(encoding="utf-8"))]
    text = written(options.page.read_text(encoding="utf-8"), rows)
    options.page.write_text(text, encoding="utf-8")
    wrong = sorted({f"{row['reader']} on {row['flavour']}" for row in rows if row["right"] < row["all"]})
    print(f"{len(rows)} runs; not all right: {', '.join(wrong) or 'none'}")


if __name__ == "__main__":
    main()
