#!/bin/sh
# Runs a program as a rank whose host has a CUDA driver if its number is even: one_driver.sh DIRECTORY PROGRAM.
# The directory holds the driver; the program finds it there, or none.
set -eu

directory=$1
shift
case $NEXAR_RANK in
*[02468]) export LD_LIBRARY_PATH="$directory" ;;
*) unset LD_LIBRARY_PATH ;;
esac
exec "$@"
