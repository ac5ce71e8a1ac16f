#!/bin/sh
# Checks the library's dynamic section: soname, flags, no relocations of code, no rpath.
set -eu

readelf=$1 library=$2 soname=$3
section=$("$readelf" -dW "$library")
status=0

must() {
    echo "$section" | grep -q "$1" || { echo "missing: $2"; status=1; }
}
must_not() {
    ! echo "$section" | grep -q "$1" || { echo "unwanted: $2"; status=1; }
}

must "(SONAME).*\[$soname\]" "soname $soname"
must 'FLAGS_1.* NODELETE' 'NODELETE, as thread-local destructors may run after dlclose'
must 'FLAGS).* BIND_NOW' 'BIND_NOW, so that a missing symbol shows at load'
must_not 'TEXTREL' 'TEXTREL: relocations that make code writable'
must_not 'RPATH\|RUNPATH' 'RPATH: a path of the build machine'
exit $status
