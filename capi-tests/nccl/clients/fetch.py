#!/usr/bin/env python3
"""Fetches single files of a wheel from the Python package index.

    fetch.py nvidia-nccl-cu12==2.32.3 build/wheels/nccl 'nvidia/nccl/include/*.h'

pip selects the wheel by its settings and gives the URL; ranges of it are then read as a zip file:
about one of hundreds of MB. A stamp in the directory prevents fetching the same files again. The
exit code is 77 (skipped) if the index cannot be reached, and 1 on any other error.
"""

import argparse
import fnmatch
import http.client
import io
import logging
import os
import signal
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath

SKIPPED = 77
STAMP = ".fetched"
DEADLINE = 100  # seconds, for everything
TIMEOUT = 10  # seconds, for one answer
ATTEMPTS = 3
BLOCK = 256 << 10


class Unreachable(Exception):
    """The index or a wheel cannot be read."""


class Wrong(Exception):
    """The index answered, but does not have the requested wheel or files."""


def main():
    options = parse()
    try:
        fetch(options)
    except Unreachable as reason:
        say(f"skipped: {options.requirement} cannot be fetched: {reason}")
        return SKIPPED
    except Wrong as reason:
        say(f"{options.requirement}: {reason}")
        return 1
    return 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python-version", help="as of pip, if the wheel need not fit this Python")
    parser.add_argument("--platform", help="as of pip, if the wheel need not fit this machine")
    parser.add_argument("requirement")
    parser.add_argument("directory", type=Path)
    parser.add_argument("pattern", nargs="+")
    return parser.parse_args()


def fetch(options):
    # The Python version selects the wheel.
    wanted = "\n".join(
        [
            options.requirement,
            options.python_version or sys.implementation.cache_tag,
            options.platform or "",
            *options.pattern,
            "",
        ]
    )
    stamp = options.directory / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(DEADLINE)
    url = locate(options)
    with open_url(url) as file, zipfile.ZipFile(file) as wheel:
        names = select(wheel, options.pattern)
        for name in names:
            write(options.directory / name, wheel.read(name))
        write(stamp, wanted.encode())
    print(f"{options.requirement}: {file.cost()} for {len(names)} file(s)", flush=True)


def too_late(*_):
    raise Unreachable(f"it takes more than {DEADLINE} s")


def locate(options):
    """Returns the URL of the wheel that pip would install.

    `pip install --dry-run --report` would download the whole wheel first (pip 23 to 26). So this
    calls pip's own search, which knows the index, the proxies and this machine's tags.
    """
    try:
        from pip._internal.cli.cmdoptions import make_target_python
        from pip._internal.commands import create_command
        from pip._vendor.packaging.requirements import InvalidRequirement, Requirement
    except ImportError as error:
        raise Unreachable(f"this Python has no usable pip: {error}")
    logging.disable(logging.CRITICAL)  # the error is printed in one line
    arguments = [
        "--only-binary=:all:",
        f"--timeout={TIMEOUT}",
        f"--retries={ATTEMPTS - 1}",
        "--no-cache-dir",
    ]
    if options.python_version:
        arguments.append(f"--python-version={options.python_version}")
    if options.platform:
        arguments.append(f"--platform={options.platform}")
    try:
        requirement = Requirement(options.requirement)
    except InvalidRequirement as error:
        raise Wrong(error)
    install = create_command("install")
    settings, _ = install.parse_args(arguments)
    with install.main_context():
        session = install.get_default_session(settings)
        finder = install._build_package_finder(settings, session, make_target_python(settings))
        found = finder.find_best_candidate(requirement.name, requirement.specifier).best_candidate
        if found:
            return found.link.url_without_fragment
        # pip ignores an index that does not answer, so this asks the index again.
        if not finder.index_urls:
            raise Unreachable("pip is configured without an index")
        for page in finder.search_scope.get_index_urls_locations(requirement.name):
            ask(page)
    raise Wrong("the index has no such wheel for this Python and machine")


def ask(page):
    try:
        urllib.request.urlopen(page, timeout=TIMEOUT).close()
    except (OSError, http.client.HTTPException) as error:
        if not (isinstance(error, urllib.error.HTTPError) and error.code == 404):
            raise Unreachable(error)


def open_url(url):
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file":
        return Local(urllib.request.url2pathname(parts.path))
    return Remote(url)


class Local(io.FileIO):
    def cost(self):
        return "a local wheel"


class Remote(io.RawIOBase):
    """A file at a URL, read and cached in blocks."""

    def __init__(self, url):
        self.url, self.at, self.blocks, self.received = url, 0, {}, 0
        self.size = self.get(0, 1)[1]

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self.at

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise OSError("a seek to before the beginning")
        self.at = base + offset
        return self.at

    def readinto(self, buffer):
        end = min(self.at + len(buffer), self.size)
        if end <= self.at:
            return 0
        first, last = self.at // BLOCK, (end - 1) // BLOCK
        missing = [number for number in range(first, last + 1) if number not in self.blocks]
        if missing:  # one request, which may include cached blocks between missing ones
            begin = missing[0] * BLOCK
            data, _ = self.get(begin, min((missing[-1] + 1) * BLOCK, self.size))
            for offset in range(0, len(data), BLOCK):
                self.blocks[(begin + offset) // BLOCK] = data[offset : offset + BLOCK]
        data = b"".join(self.blocks[number] for number in range(first, last + 1))
        offset = self.at - first * BLOCK
        taken = end - self.at
        buffer[:taken] = data[offset : offset + taken]
        self.at = end
        return taken

    def get(self, begin, end):
        """Returns the bytes from `begin` to before `end`, and the size of the whole file."""
        request = urllib.request.Request(self.url, headers={"Range": f"bytes={begin}-{end - 1}"})
        for attempt in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                    if answer.status != 206:
                        raise Unreachable("no ranges of the wheel are served")
                    data = answer.read()
                    size = int(answer.headers["Content-Range"].rpartition("/")[2])
                if len(data) == end - begin:
                    self.received += len(data)
                    return data, size
                error = f"{len(data)} bytes came instead of {end - begin}"
            except (OSError, http.client.HTTPException) as failure:
                error = failure
        raise Unreachable(f"{error} ({ATTEMPTS} attempts)")

    def cost(self):
        return f"{self.received / 1e6:.1f} of {self.size / 1e6:.1f} MB"


def select(wheel, patterns):
    """Returns the members that match a pattern. Every pattern must match."""
    names = []
    for pattern in patterns:
        matches = [
            name
            for name in wheel.namelist()
            if fnmatch.fnmatchcase(name, pattern) and not name.endswith("/")
        ]
        if not matches:
            raise Wrong(f"no file of the wheel matches {pattern}")
        names += matches
    for name in names:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise Wrong(f"{name} would not stay in the directory")
    return sorted(set(names))


def write(path, data):
    """Writes the file atomically, also if another process writes it at the same time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def say(text):
    print(" ".join(str(text).split()), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
