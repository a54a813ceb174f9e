"""Runs clang-tidy over the sources, but not their tests.

Usage: check_tidy.py [--quick] [ROOM …]      all rooms if none is named

With torch's headers a file takes long, so ./test names the rooms without them and ./lint checks all. --quick leaves
out the static analyzer, which takes half of the time.
A file that passed is not checked again until it, a header of ours that it includes, or .clang-tidy changes.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tidy"
INCLUDE = re.compile(r'^\s*#\s*include\s*"(nereus/[^"]+)"', re.MULTILINE)


def configure():
    """Compile commands without precompiled headers: gcc's are of no use to clang."""
    subprocess.run(
        ["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
         "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON"],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((BUILD / "compile_commands.json").read_text())


def fingerprint(file, options):
    """A hash of the options, the file and all our headers that it includes, directly or not."""
    seen, todo = {}, [file]
    while todo:
        current = todo.pop()
        if current in seen or not current.exists():
            continue
        seen[current] = current.read_text()
        todo += [ROOT / "src" / name for name in INCLUDE.findall(seen[current])]
    text = " ".join(options) + (ROOT / ".clang-tidy").read_text() + "".join(seen[key] for key in sorted(seen))
    return hashlib.sha256(text.encode()).hexdigest()


def check(file, options):
    tidy = pathlib.Path(sys.executable).with_name("clang-tidy")
    # libstdc++ 12 uses its own deprecated get_temporary_buffer().
    own = "--extra-arg=-Wno-deprecated-declarations"
    result = subprocess.run([tidy, "-p", BUILD, "--quiet", own, *options, file], check=False, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return result.returncode == 0, result.stdout


def main():
    options = ["--checks=-clang-analyzer-*"] if "--quick" in sys.argv[1:] else []
    wanted = [argument for argument in sys.argv[1:] if argument != "--quick"]
    files = sorted({pathlib.Path(command["file"]) for command in configure()})
    files = [file for file in files if ROOT / "src" in file.parents
             and file.suffix == ".cpp"  # kernels are nvcc's
             and not file.stem.endswith("_test")
             and (not wanted or file.relative_to(ROOT / "src" / "nereus").parts[1] in wanted)]
    passed = BUILD / "passed"
    passed.mkdir(exist_ok=True)
    todo = [(file, passed / fingerprint(file, options)) for file in files]
    todo = [(file, stamp) for file, stamp in todo if not stamp.exists()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda entry: check(entry[0], options), todo)
        for (file, stamp), (fine, output) in zip(todo, results):
            if fine:
                stamp.touch()
            else:
                failed += 1
                print(f"{file.relative_to(ROOT)}:\n{output}", flush=True)
    print(f"clang-tidy: {len(files)} files, {len(todo)} checked now, {failed} with problems")
    return 1 if failed or not files else 0


if __name__ == "__main__":
    sys.exit(main())
