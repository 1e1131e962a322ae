#!/bin/sh
# Runs the program `ranks` as four processes under each MPI launcher that is
# installed: Open MPI's and MPICH's.  Exit code 77: there is none.
#
#   ranks.sh RANKS
set -u
ranks=$1
failed=0
tried=

# Tests run as root in containers, and on fewer processors than four.
# Processors are shared, so waiting must give them away.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
# One machine: no network hardware is looked for, shared memory needs no
# permission to read other processes.
export OMPI_MCA_btl=self,vader,tcp OMPI_MCA_pml=ob1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

# MPICH's transport patches the allocation functions of the process, which
# sanitizers have patched before.
export UCX_MEM_EVENTS=no

# What the libraries leave to the end of the process is not ours.  They have no
# frame pointers, so only whole stacks tell who allocated.
suppressions=$(dirname "$0")/suppressions
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}fast_unwind_on_malloc=0"
export LSAN_OPTIONS="suppressions=$suppressions/lsan.txt:print_suppressions=0"
export TSAN_OPTIONS="suppressions=$suppressions/tsan.txt:ignore_noninstrumented_modules=1"

check() { # TEXT EXPECTED COMMAND...
    text=$1
    expected=$2
    shift 2
    timeout 300 "$@" >"$log" 2>&1
    code=$?
    if { [ "$expected" = failure ] && [ $code -ne 0 ] && [ $code -ne 124 ]; } ||
        [ "$code" = "$expected" ]; then
        echo "ok: $text"
    else
        echo "FAILED: $text: exit $code, expected $expected"
        cat "$log"
        failed=1
    fi
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT

for launcher in mpirun.openmpi mpirun.mpich mpirun; do
    command -v $launcher >/dev/null || continue
    case $($launcher --version 2>&1) in
    *"Open MPI"* | *OpenRTE*) family=open ;;
    *HYDRA* | *MPICH*) family=mpich ;;
    *) continue ;;
    esac
    case "$tried " in *" $family "*) continue ;; esac
    tried="$tried $family"
    flags=
    other=libmpich.so.12
    if [ $family = open ]; then
        flags="--oversubscribe --allow-run-as-root"
    else
        other=libmpi.so.40
    fi
    # shellcheck disable=SC2086 # a list of flags
    {
        check "$launcher: four processes" 0 $launcher $flags -n 4 "$ranks"
        cat "$log"
        check "$launcher: one that fails ends the others" failure \
            $launcher $flags -n 4 "$ranks" --fail
        # The library of the other family does not know this launcher.
        if ldconfig -p 2>/dev/null | grep -q "$other"; then
            check "$launcher: a library that is not the launcher's" 0 \
                env MLX_MPI_LIBNAME=$other $launcher $flags -n 4 \
                "$ranks" --strangers
        fi
    }
done

if [ -z "$tried" ]; then
    echo "SKIPPED: no mpirun is installed (in Debian: openmpi-bin), so" \
        "nothing was tried between processes"
    exit 77
fi
exit $failed
