#!/bin/sh
# Runs a rank as on one of two hosts: even and odd ranks do not share memory.
NEXAR_HOSTID=$((NEXAR_RANK % 2)) exec "$@"
