#!/bin/sh
# run.sh DIR SECONDS [NAME...]: runs each fuzz target built in DIR (or only the
# NAMEs) for SECONDS.  Corpora grow in DIR/corpus/NAME, beginning with those
# beside this script; inputs that break something are left in DIR/findings.
# Exits with 1 when there is one, after all targets had their turn.
set -u
if [ $# -lt 2 ]; then
    echo "usage: $0 DIR SECONDS [NAME...]" >&2
    exit 2
fi
dir=$1
seconds=$2
shift 2
seeds=$(cd "$(dirname "$0")" && pwd)/corpus

if [ $# -eq 0 ]; then
    for target in "$dir"/fuzz_*; do
        case $target in
        *_replay) ;;
        *) [ -f "$target" ] && [ -x "$target" ] &&
            set -- "$@" "${target##*/fuzz_}" ;;
        esac
    done
fi
if [ $# -eq 0 ]; then
    echo "$0: no fuzz targets in $dir" >&2
    exit 2
fi

failed=
mkdir -p "$dir/findings" || exit 2
for name in "$@"; do
    mkdir -p "$dir/corpus/$name" || exit 2
    echo "== fuzz_$name, $seconds s"
    # A second directory is read, and only the first is written to.
    set -- "$dir/corpus/$name"
    [ -d "$seeds/$name" ] && set -- "$@" "$seeds/$name"
    if ! "$dir/fuzz_$name" -max_total_time="$seconds" -timeout=60 \
        -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$dir/findings/$name-" "$@"; then
        failed="$failed $name"
    fi
done
if [ -n "$failed" ]; then
    echo "findings in:$failed (inputs in $dir/findings)" >&2
    exit 1
fi
