#!/bin/sh
# one_driver.sh DIRECTORY PROGRAM: runs a program as a rank. If the rank is even, the program finds
# the CUDA driver in the directory; else it finds none.
set -eu

directory=$1
shift
case $NEXAR_RANK in
*[02468]) export LD_LIBRARY_PATH="$directory" ;;
*) unset LD_LIBRARY_PATH ;;
esac
exec "$@"
