/* fuzz_abi.c: one random program over the C ABI (abi.h), drawn from the bytes.
 *
 * When all its handles are freed, the library holds nothing of it: no storage
 * of arrays, no payload, buffer or byte stream of the program's. */
#include "abi.h"

#include <unistd.h>

/* Refuses what no test needs, so that a program that asks for the whole memory
 * gets an error rather than it. */
const char *__asan_default_options(void);
__attribute__((used, visibility("default"))) const char *
__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=512";
}

static size_t active(void)
{
    size_t bytes;
    /* May deliver what an evaluation in the background met. */
    (void)mlx_synchronize_default();
    FUZZ_CHECK(!mlx_get_active_memory(&bytes));
    return bytes;
}

void fz_run(fz *f, size_t calls)
{
    static bool begun;
    static size_t before;
    if (!begun) {
        fz_files_make();
        atexit(fz_files_end);
        fz_reset_process();
        before = active();
        begun = true;
    }
    fz_start(f);
    unsigned long long last = fz_calls + calls;
    while (fz_calls < last && !f->ended) {
        fz_step(f);
        if (fz_one_in(f, 40))
            fz_damage(f);
    }
    fz_finish(f);
    fz_reset_process();
    /* Destructors of what was computed in the background run there, after the
     * work itself: they are waited for, seconds if need be. */
    for (int i = 0; i < 5000 && (active() != before || fz_held); i++)
        usleep(1000);
    FUZZ_CHECK(fz_held == 0);
    FUZZ_CHECK(active() == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fz f = {.data = data, .left = size};
    fz_run(&f, 1000);
    return 0;
}
