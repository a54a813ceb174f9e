"""Checks that every C++ file is formatted as .clang-format says (./lint --fix formats)."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def main():
    files = sorted(str(file) for folder in ("src", "apps", "bench", "tests")
                   for suffix in ("h", "cpp") for file in (ROOT / folder).rglob(f"*.{suffix}"))
    clang_format = pathlib.Path(sys.executable).with_name("clang-format")
    result = subprocess.run([clang_format, "--dry-run", "--Werror", *files], check=False)
    print(f"format: {len(files)} files {'with problems' if result.returncode else 'fine'}")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
