#!/bin/sh
# Holds every #include under src/ and include/ to the table of rooms below.
# Prints each line that breaks it, with the reason, and exits 1 on any.
#
#   layers.sh [ROOT]        check the tree at ROOT (default: this repository)
#   layers.sh --self-test   plant violations in a scratch tree and check that
#                           each is caught, and that the allowed lines are not
#
# Beside the table: includes are rooted at src/ or include/, a bare name is a
# file of the same folder, no file includes a .c file, and a folder that the
# table does not know is an error, so that a new room is entered here first.
set -eu

# Columns: the room; the rooms that it may include beside itself and libc; the
# guarded system headers (groups below) that it may use.  `quern` is all of
# include/quern, an entry with a slash and a dot is that one header, an entry
# behind ! is barred although its room is allowed.
rooms='
include/mlx/c   |                                                   |
include/quern   | mlx/c                                             |
base            |                                                   | threads cpuid
core            | base                                              | threads
ops             | base core !base/thread                            |
transform       | base core ops !base/thread                        |
backend/common  | base core ops                                     |
backend/ref     | base core ops backend/common !base/thread         |
backend/cpu     | base core ops backend/common backend/ref          | threads simd
backend/cuda    | base core ops backend/common                      | threads cuda
io              | base core ops                                     |
distributed     | base core                                         |
capi            | base core ops transform backend/common backend/ref backend/cpu backend/cuda io distributed mlx/c quern/ext.h | threads
ext             | base mlx/c quern/ext.h                            |
kv              | base mlx/c quern/ext.h                            |
text            | base                                              | threads unicode regex
model           | base kv mlx/c quern/ext.h                         |
hub             | base quern                                         | curl
runtime         | base kv text model hub mlx/c quern                | threads
eval            | base quern                                         |
convert         | base kv text model runtime mlx/c quern            |
server          | base quern                                        | threads sockets http
cli             | base quern server web                             | curl edit
web             | base quern server                                 |
'

# Group: shell patterns of the headers (in <> or "") that belong to it.
groups='
threads | pthread.h threads.h semaphore.h sched.h omp.h
simd    | *intrin.h *intrin_*.h arm_neon.h arm_sve.h arm_sme.h altivec.h
cpuid   | cpuid.h
sockets | sys/socket.h sys/un.h netinet/* arpa/* netdb.h sys/epoll.h
http    | microhttpd.h
curl    | curl/*
cuda    | cuda.h cuda_*.h cuda/* cublas*.h nvrtc.h nccl.h
edit    | histedit.h editline/*
unicode | utf8proc.h
regex   | pcre2.h
'

check() { # ROOT
    (
        cd "$1"
        find src include -type f \( -name '*.[ch]' -o -name '*.inc' -o \
            -name '*.def' -o -name '*.cu' -o -name '*.cuh' \) \
            -exec grep -nHE '^[[:space:]]*#[[:space:]]*include' {} + |
            sort -t : -k 1,1 -k 2,2n |
            awk -v rooms="$rooms" -v groups="$groups" "$program"
    )
}

# shellcheck disable=SC2016 # awk's dollars
program='
function trim(s)
{
    gsub(/^[ \t]+|[ \t]+$/, "", s)
    return s
}

# A shell pattern as an anchored regular expression.
function pattern(s)
{
    gsub(/[.]/, "[.]", s)
    gsub(/[*]/, ".*", s)
    return "^" s "$"
}

# The room of a path under src/ or include/: the longest that holds it.
function room_of(path,    dir, tail)
{
    dir = path
    while (match(dir, /\/[^\/]*$/)) {
        dir = substr(dir, 1, RSTART - 1)
        if (dir in allowed)
            return dir
    }
    return ""
}

function bad(reason)
{
    printf "%s:%s: %s   (%s)\n", file, line, trim(text), reason
    failures++
}

# Why `room` may not include the file at `path` of room `target`; "" if it may.
function verdict(room, path, target,    n, i, list, entry, found)
{
    if (target == room)
        return ""
    found = 0
    n = split(allowed[room], list, " ")
    for (i = 1; i <= n; i++) {
        entry = list[i]
        if (substr(entry, 1, 1) == "!") {
            if (index(path, substr(entry, 2)) == 1)
                return room " must not use " substr(entry, 2)
        } else if (entry == path || entry == target ||
                   "include/" entry == target) {
            found = 1
        }
    }
    if (found)
        return ""
    return room " may not include " path
}

function guarded(room, path,    n, i, list, g)
{
    for (g in headers) {
        n = split(headers[g], list, " ")
        for (i = 1; i <= n; i++)
            if (path ~ pattern(list[i]) &&
                index(" " system_groups[room] " ", " " g " ") == 0)
                return room " may not use " g " headers"
    }
    return ""
}

# True for a file; an empty one answers 0, a missing one -1.
function exists(path,    ignored, answer)
{
    answer = (getline ignored < path)
    close(path)
    return answer >= 0
}

BEGIN {
    n = split(rooms, rows, "\n")
    for (i = 1; i <= n; i++)
        if (split(rows[i], cell, "|") == 3) {
            name = trim(cell[1])
            allowed[name] = trim(cell[2])
            system_groups[name] = trim(cell[3])
        }
    n = split(groups, rows, "\n")
    for (i = 1; i <= n; i++)
        if (split(rows[i], cell, "|") == 2)
            headers[trim(cell[1])] = trim(cell[2])
}

{
    split($0, part, ":")
    file = part[1]
    line = part[2]
    text = substr($0, length(file) + length(line) + 3)

    own = file
    sub(/^src\//, "", own)
    room = room_of(own)
    if (room == "") {
        bad("this folder is no room of the table")
        next
    }

    name = text
    sub(/^[ \t]*#[ \t]*include[ \t]*/, "", name)
    quote = substr(name, 1, 1)
    if (quote == "<")
        end = index(name, ">")
    else if (quote == "\"")
        end = index(substr(name, 2), "\"") + 1
    else
        end = 0
    if (end < 3) {
        bad("the included name must be written out")
        next
    }
    name = substr(name, 2, end - 2)

    if (name ~ /(^|\/)[.][.]?\//) {
        bad("relative path: root it at src/, or use the bare name")
        next
    }
    if (name ~ /[.]c(u|c|pp)?$/) {
        bad("a source file is compiled, not included")
        next
    }

    target = room_of(name ~ /^(mlx|quern)\// ? "include/" name : name)
    if (target != "") {
        reason = verdict(room, name, target)
    } else {
        reason = guarded(room, name)
        if (reason == "" && quote == "\"") {
            folder = file
            sub(/[^\/]*$/, "", folder)
            if (index(name, "/"))
                reason = "names no room of the table"
            else if (!exists(folder name))
                reason = "no such file in this folder"
        }
    }
    if (reason != "")
        bad(reason)
}

END {
    if (NR == 0) {
        print "layers: found no includes at all: is this the right folder?"
        exit 1
    }
    if (failures) {
        printf "layers: %d of %d includes break the table\n", failures, NR
        exit 1
    }
    printf "layers: %d includes checked\n", NR
}
'

# --- self test -------------------------------------------------------------

passed=0
failed=0

# Plants LINE in FILE of a fresh tree; expects `ok`, or the caught line.
plant() { # ok|caught FILE LINE
    rm -rf "${scratch:?}/src" "${scratch:?}/include"
    mkdir -p "$scratch/src" "$scratch/include" \
        "$scratch/$(dirname "$2")"
    printf '%s\n' "/* line one */" "$3" >"$scratch/$2"
    : >"$scratch/$(dirname "$2")/sibling.h"
    rc=0
    out=$(check "$scratch") || rc=$?
    case $1 in
    ok) [ "$rc" -eq 0 ] ;;
    caught)
        [ "$rc" -eq 1 ] && case $out in
        "$2:2: "*) ;;
        *) false ;;
        esac
        ;;
    esac || {
        failed=$((failed + 1))
        printf 'FAILED expected %s: %s in %s\n%s\n' "$1" "$3" "$2" "$out"
        return 0
    }
    passed=$((passed + 1))
}

self_test() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT

    # The door: no runtime room reaches past it, in either kind of bracket.
    for room in kv text model runtime cli server web ext; do
        for inner in core/array.h ops/ops.h transform/vjp.h io/npy.h distributed/mpi.h \
            backend/common/plan.h backend/ref/run.h backend/cpu/run.h \
            backend/cuda/run.h capi/box.h; do
            plant caught "src/$room/x.c" "#include \"$inner\""
        done
        plant caught "src/$room/x.c" "#include <core/array.h>"
        plant ok "src/$room/x.c" '#include "base/status.h"'
    done
    for room in kv model runtime ext; do
        plant ok "src/$room/x.c" '#include <mlx/c/mlx.h>'
        plant ok "src/$room/x.c" '#include <quern/ext.h>'
    done
    for room in text server cli web base core ops io backend/cpu; do
        plant caught "src/$room/x.c" '#include <mlx/c/mlx.h>'
    done
    plant caught src/kv/x.c '#include "quern/quern.h"'
    plant caught src/model/x.c '#include <quern/quern.h>'
    plant ok src/server/x.c '#include <quern/quern.h>'

    # The contract has no additions of ours.
    plant ok include/mlx/c/array.h '#include "mlx/c/types.h"'
    plant caught include/mlx/c/array.h '#include "quern/ext.h"'
    plant caught include/mlx/c/array.h '#include "base/status.h"'
    plant ok include/quern/ext.h '#include <mlx/c/mlx.h>'
    plant caught include/quern/ext.h '#include "core/array.h"'

    # The engine goes upward only.
    plant caught src/base/x.c '#include "core/array.h"'
    plant caught src/core/x.h '#include "ops/ops.h"'
    plant caught src/core/x.h '#include "backend/cpu/run.h"'
    plant caught src/ops/x.c '#include "transform/vjp.h"'
    plant ok src/io/x.c '#include "ops/ops.h"'
    plant caught src/io/x.c '#include "backend/ref/ref.h"'
    plant ok src/distributed/x.c '#include "core/group.h"'
    plant caught src/distributed/x.c '#include "ops/ops.h"'
    plant caught src/backend/cpu/x.c '#include "distributed/group.h"'
    plant caught src/backend/common/x.c '#include "backend/ref/run.h"'
    plant caught src/backend/ref/x.c '#include "backend/cpu/run.h"'
    plant caught src/backend/cuda/x.cu '#include "backend/cpu/run.h"'
    plant ok src/backend/cpu/kernels/dot/x.c '#include "backend/ref/run.h"'
    plant ok src/backend/cpu/kernels/dot/x.inc \
        '#include "backend/cpu/simd_avx2.h"'
    plant ok src/capi/x.c '#include "backend/cuda/run.h"'
    plant caught src/capi/x.c '#include "kv/cache.h"'

    # Guarded system headers.
    plant caught src/backend/ref/x.c '#include <immintrin.h>'
    plant caught src/backend/ref/x.c '#include <pthread.h>'
    plant caught src/backend/ref/x.c '#include "base/thread.h"'
    plant caught src/ops/x.c '#  include <arm_neon.h>'
    plant caught src/core/x.c '#include <immintrin.h>'
    plant caught src/model/x.c '#include <pthread.h>'
    plant caught src/text/x.c '#include <sys/socket.h>'
    plant caught src/runtime/x.c '#include <microhttpd.h>'
    plant caught src/base/x.c '#include <pcre2.h>'
    plant caught src/runtime/x.c '#include <curl/curl.h>'
    plant ok src/hub/x.c '#include <curl/curl.h>'
    plant ok src/base/x.c '#include <pthread.h>'
    plant ok src/text/x.c '#include <pcre2.h>'
    plant ok src/backend/cpu/x.c '#include <immintrin.h>'
    plant ok src/backend/ref/x.c '#include <math.h>'

    # Names.
    plant ok src/core/x.c '#include "sibling.h"'
    plant caught src/core/x.c '#include "stranger.h"'
    plant caught src/core/x.c '#include "../base/status.h"'
    plant caught src/core/x.c '#include "./sibling.h"'
    plant caught src/core/x.c '#include "sibling.c"'
    plant caught src/core/x.c '#include "attic/x.h"'
    plant caught src/core/x.c '#include HEADER'
    plant caught src/attic/x.c '#include "base/status.h"'
    plant caught src/x.c '#include "base/status.h"'

    printf '%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
}

case ${1-} in
--self-test) self_test ;;
-*)
    echo "usage: tests/layers.sh [ROOT | --self-test]" >&2
    exit 2
    ;;
*) check "${1:-$(dirname "$0")/..}" ;;
esac
