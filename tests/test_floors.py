"""Imports go down only, and the pure floors stay pure."""

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).parent.parent / "shardtool"
FLOOR = {
    "version": 0, "base": 0,
    "layout": 1, "schedule": 1, "mixing": 1,
    "loaders": 2,
    "disk": 3,
    "jobs": 4, "torch": 4,
    "cli": 5, "report": 5, "__main__": 5, "__init__": 5,
}  # fmt: skip
# The three parts of floor 1 do not know each other; cli and report are one floor and may.
SEPARATE = {"layout", "schedule", "mixing"}
IMPURE = {"os", "io", "pathlib", "time", "datetime", "shutil", "tempfile", "subprocess", "socket", "mmap",
          "threading", "multiprocessing", "random", "secrets"}  # fmt: skip


def room(path: pathlib.Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def modules_of(path: pathlib.Path, node: ast.AST) -> list[str]:
    """Absolute names of what an import statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert isinstance(node, ast.ImportFrom)
    if not node.level:
        return [f"{node.module}.{a.name}" for a in node.names]
    package = ["shardtool", *path.relative_to(PACKAGE).parts[:-1]]
    base = package[: len(package) - node.level + 1] + ([node.module] if node.module else [])
    return [".".join([*base, alias.name]) for alias in node.names]


def imports():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                for name in modules_of(path, node):
                    yield path, node.lineno, name


def test_imports_go_down():
    wrong = []
    for path, line, name in imports():
        here, parts = room(path), name.split(".")
        if parts[0] != "shardtool" or len(parts) == 1:
            continue
        there = parts[1]
        if there not in FLOOR:  # a name from the package's own __init__
            there = "__init__" if here not in ("cli", "report", "__main__") else "base"
        up = FLOOR[there] > FLOOR[here]
        sideways = here != there and {here, there} <= SEPARATE
        if up or sideways:
            wrong.append(f"{path.relative_to(PACKAGE)}:{line} ({here}) imports {name}")
    assert not wrong, "\n".join(wrong)


def test_pure_floors_touch_nothing():
    wrong = []
    for path, line, name in imports():
        top = name.split(".")[0]
        if FLOOR[room(path)] <= 2 and top in IMPURE and (path.name, top) not in ALLOWED:
            wrong.append(f"{path.relative_to(PACKAGE)}:{line} imports {name}")
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            pure = FLOOR[room(path)] <= 2
            if pure and isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} opens a file")
            random = isinstance(node, ast.Attribute) and ast.unparse(node).startswith("np.random.")
            if random and path.name != "seeds.py":
                wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno} uses np.random outside base/seeds.py")
    assert not wrong, "\n".join(wrong)


# (file, module): what and why
ALLOWED = {
    ("errors.py", "os"),  # os.fsencode: names are bytes; nothing is opened
    ("seeds.py", "random"),  # the one place for foreign generators
}
