#!/usr/bin/env python3
"""Executes the commands and the programs of README.md and CONTRIBUTING.md as a reader would.

    documents.py DOCUMENT SOURCE BUILD

The library is installed below a temporary prefix. A C block is compiled and run by the commands of
its document. After a line that begins with "$ ", the lines below must be part of its output.
Commands that take minutes are not executed: `make TARGET` only prints its recipe, `ctest` its
tests. A `make` of a fast target (FAST) is executed, without building first.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FAST = ("demo", "help", "install")
RANKS = 4


def main():
    document, source, build = (Path(argument).resolve() for argument in sys.argv[1:])
    text = document.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        reader = Reader(source, build, Path(scratch))
        reader.shell(f"make -o build BUILD={build} install PREFIX={reader.prefix}", source)
        executed = 0
        for language, block in blocks(text):
            if language == "c":
                (reader.scratch / "program.c").write_text(block)
                executed += 1
            for command, expected in commands(block) if language == "" else ():
                reader.follow(command, expected)
                executed += 1
        for command in commands_of_tables(text):
            reader.follow(command, [])
            executed += 1
        if "make help" in text:
            same_targets(text, reader.shell("make help", source))
    print(f"{document.name}: {executed} commands and programs")
    if executed < 5:
        sys.exit("the document has lost its commands")


def blocks(text):
    """Returns language and text of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(block):
    """Yields the commands of a block without a language, each with its expected output."""
    lines = block.splitlines()
    if any(line.startswith("$ ") for line in lines):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *expected = part.splitlines()
            yield command, expected
        return
    for line in lines:
        if command := line.split(" # ")[0].strip():
            yield command, []


def commands_of_tables(text):
    """Yields the quoted commands in the first column of tables."""
    for cell in re.findall(r"^\| (`make .*?) \|", text, re.MULTILINE):
        yield from re.findall(r"`(make [^`]*)`", cell)


def same_targets(text, listed):
    named = {target for command in commands_of_tables(text) for target in command.split()[1:]}
    known = set(re.findall(r"^make (\S+)", listed, re.MULTILINE))
    if named != known:
        sys.exit(f"only in the document: {named - known}; only in the Makefile: {known - named}")


class Reader:
    def __init__(self, source, build, scratch):
        self.source, self.build, self.scratch = source, build, scratch
        self.prefix = scratch / "prefix"

    def environment(self):
        """Returns the environment of a user with the library installed below the prefix."""
        packages = list(self.prefix.glob("**/pkgconfig"))
        return {
            **os.environ,
            "PATH": f"{self.prefix / 'bin'}:{os.environ['PATH']}",
            "PKG_CONFIG_PATH": ":".join(map(str, packages)),
            "LD_LIBRARY_PATH": ":".join(str(package.parent) for package in packages),
            # As the Makefile sets it for the Rust tests.
            "CARGO_INCREMENTAL": "0",
        }

    def shell(self, command, folder):
        print(f"$ {command}", flush=True)
        ran = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if ran.returncode:
            sys.exit(f"{ran.stdout}\n{command} ended with {ran.returncode}")
        return ran.stdout

    def follow(self, command, expected):
        words = shlex.split(command)
        while "=" in words[0]:
            # A setting such as NEXAR_BLESS=1 would change files of the project.
            words.pop(0)
        output = self.run(command, words)
        for line in expected:
            if line.strip() not in output:
                sys.exit(f"{command} did not print\n{line}\nbut\n{output}")

    def run(self, command, words):
        tool = words[0]
        if tool == "make":
            targets = [word for word in words[1:] if "=" not in word]
            is_fast = all(target in FAST for target in targets)
            flags = ["-o", "build"] if is_fast else ["-n"]
            settings = [f"BUILD={self.build}", f"PREFIX={self.prefix}"]
            return self.shell(shlex.join(["make", *flags, *targets, *settings]), self.source)
        if tool == "ctest":
            words[words.index("--test-dir") + 1] = str(self.build)
            output = self.shell(shlex.join([*words, "-N"]), self.source)
            if "Total Tests: 0\n" in output:
                sys.exit(f"{command} names no test")
            return output
        if tool in ("cc", "nexar-run"):
            output = self.shell(command, self.scratch)
            if tool == "nexar-run" and output.count(f"{RANKS} ranks") != RANKS:
                sys.exit(f"{RANKS} ranks did not print their number:\n{output}")
            return output
        if tool.startswith("build/"):
            words[0] = str(self.build / tool.removeprefix("build/"))
        return self.shell(shlex.join(words), self.source)


main()
