"""Strangers, malicious members and bad networks: cases of tests/hostile, which prints their
rows."""

import os
import subprocess

from world import Failed

DEADLINE = 300  # seconds, for one case


class Skipped(Exception):
    """The case cannot be tried on this system."""


# Cases, and the beginnings of the names of their rows.
CASES = {
    "strangers_in_bulk": ["strangers with a key of their own"],
    "false_roots": ["false roots"],
    "a_member_cannot_dial": ["a member that dials as another, as nobody, or where nobody is"],
    "a_member_cannot_be_dialled": ["a member that is dialled as another rank"],
    "a_join_that_is_sent_again": ["a join that is sent again"],
    "garbage_at_every_port": ["garbage at every port"],
    "handshakes_that_do_not_go_on": ["Initials from the same host"],
    "handshakes_of_many_addresses": ["Initials from 12 addresses"],
    "a_member_that_breaks_the_protocol": ["malicious member"],
    "a_member_that_garbles_its": ["malicious member of this host"],
    "a_member_takes_no_more_memory": ["malicious member: memory that its unread data takes"],
    "a_member_that_reads_nothing": ["malicious member: memory for what it does not read"],
    "a_network_that_does_anything": ["network, "],
    "a_panic_inside_an": ["a panic inside an operation, 4 ranks"],
    "a_panic_inside_is": [
        f"a panic inside an operation, {size} ranks, each exits at once" for size in (2, 4, 8)
    ],
    "an_ordinary_user_shares_memory": ["ranks of an ordinary user"],
    "ranks_of_different_users": ["ranks of different users"],
}
# Cases that create a network.
FOR_ROOT = {"handshakes_of_many_addresses"}


def run(options, case):
    """Yields the rows of a case: name, tries, bound, unit, values."""
    settings = {"HOSTILE_ROWS": "1", "HOSTILE_TIMES": "1", "HOSTILE_SEED": str(options.seed)}
    if not options.quick:
        settings["HOSTILE_FULL"] = "1"
    command = [options.hostile, case]
    environment = {**os.environ, **settings}
    ran = subprocess.run(command, env=environment, timeout=DEADLINE, capture_output=True, text=True)
    lines = (line for line in ran.stdout.splitlines() if line.strip().startswith("row\t"))
    rows = [line.split("\t")[1:] for line in lines]
    for name, tries, bound, unit, values in rows:
        yield name, int(tries), float(bound), unit, [float(value) for value in values.split()]
    if ran.returncode == 0 and "skipped: " in ran.stdout:
        raise Skipped("needs root, and a program that other users can read")
    if ran.returncode != 0 or not rows:
        raise Failed(f"exit code {ran.returncode}, {len(rows)} rows: {ran.stdout}")


def add_rows(table, options):
    wanted = [case for case, names in CASES.items() if any(map(table.wants, names))]
    if wanted and not options.hostile:
        return table.skip(f"{len(wanted)} cases of tests/hostile", "no --hostile")
    for case in wanted:
        if case in FOR_ROOT and os.geteuid() != 0:
            table.skip(CASES[case][0], "only root can make a network")
            continue
        try:
            for name, tries, bound, unit, values in run(options, case):
                cases = [values[one::tries] for one in range(tries)]
                table.row(name, bound, cases, unit)
        except Skipped as reason:
            table.skip(CASES[case][0], str(reason))
        except Failed as reason:
            table.fail(CASES[case][0], reason)
        except subprocess.TimeoutExpired:
            table.fail(CASES[case][0], f"not ended after {DEADLINE} s")
