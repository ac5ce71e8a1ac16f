#!/bin/sh
# Runs a program as an ordinary user with the usual limits; root becomes the user "nobody". Exits
# with 77 (skipped) where that user cannot read the program.
ulimit -n 1024
if [ "$(id -u)" -ne 0 ]; then
  exec "$@"
fi
command -v setpriv >/dev/null || exit 77
nobody="setpriv --reuid 65534 --regid 65534 --clear-groups"
for program in "$@"; do
  case $program in /*) $nobody test -x "$program" || exit 77 ;; esac
done
exec $nobody "$@"
