# The demo model for the scripts of this folder, beside tests/cli/lib.sh.
# shellcheck shell=sh
#
# A test sets `root` and sources this file; `model` is the path.  Without the
# model a test fails, unless QUERN_SKIP_MODEL_TESTS=1.

# shellcheck disable=SC2034 # for the tests
if ! model=$("${root:?}/scripts/fetch-model.sh"); then
    if [ "${QUERN_SKIP_MODEL_TESTS-}" = 1 ]; then
        echo "skipped: no demo model"
        exit 0
    fi
    echo "the demo model can't be had"
    exit 1
fi
# shellcheck source=tests/cli/lib.sh
. "$root/tests/cli/lib.sh"
