"""Run one target of the Makefile without make: `python scripts/run_target.py test`.

Understands what our Makefile uses and no more: `NAME := value` and `NAME ?= value`, targets
with file prerequisites, `|` order-only prerequisites, recipes, `@`, and `$(NAME)`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ASSIGNMENT = re.compile(r"^(\w+)\s*([:?]?)=\s*(.*)$")
RULE = re.compile(r"^([^\s:#=][^:=]*):(?!=)\s*(.*)$")


class Makefile:
    """The variables and rules of a Makefile."""

    def __init__(self, text: str) -> None:
        self.variables: dict[str, str] = {}
        self.rules: dict[str, tuple[list[str], list[str]]] = {}
        self.done: set[str] = set()
        recipe: list[str] = []
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("\t"):
                recipe.append(line.strip())
            elif match := ASSIGNMENT.match(line):
                name, kind, value = match.groups()
                given = os.environ.get(name) if kind == "?" else None
                self.variables[name] = self.expand(value) if given is None else given
            elif match := RULE.match(line):
                recipe = []
                target = self.expand(match.group(1)).strip()
                needs = self.expand(match.group(2)).replace("|", " ").split()
                self.rules[target] = (needs, recipe)

    def expand(self, text: str, target: str = "") -> str:
        """Replace `$(NAME)` by its value and `$@` by the target."""
        text = text.replace("$@", target)
        return re.sub(r"\$\((\w+)\)", lambda match: self.variables.get(match[1], ""), text)

    def build(self, target: str) -> None:
        """Bring `target` up to date; a file is made if it is missing or older than its needs."""
        if target in self.done or target not in self.rules:
            return
        self.done.add(target)
        needs, recipe = self.rules[target]
        for need in needs:
            self.build(need)
        path = ROOT / target
        newest = (ROOT / "pyproject.toml").stat().st_mtime if "pyproject.toml" in needs else 0.0
        is_file = target not in self.rules.get(".PHONY", ([], []))[0] and path.exists()
        if is_file and path.stat().st_mtime >= newest:
            return
        for line in recipe:
            command = self.expand(line, target)
            if not command.startswith("@"):
                print(command, flush=True)
            subprocess.run(["bash", "-c", command.lstrip("@")], cwd=ROOT, check=True)


def main() -> int:
    """Run the targets named on the command line."""
    makefile = Makefile((ROOT / "Makefile").read_text(encoding="utf-8"))
    for target in sys.argv[1:]:
        try:
            makefile.build(target)
        except subprocess.CalledProcessError as error:
            return error.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
