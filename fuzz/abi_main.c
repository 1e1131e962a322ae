/* abi_main.c: build/libfuzzer/fuzz/abi, programs over the C ABI from a seed,
 * without a fuzzer.
 *
 *   abi [--calls N] [--seed S] [--program P] [--no-memory] [--empty-lists]
 *       [--trace] [--counts]
 *
 * makes N calls (100,000) in programs of 200.  What a program does follows from
 * S and its number alone; the number is printed when it fails, and --program
 * runs that one, --trace shows its calls.  With --no-memory, allocations of the
 * library fail now and then; --counts prints how often each function
 * succeeded.  With --empty-lists, lists have no elements and pointers to them
 * lead nowhere. */
#include "abi.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAM = 200 };

static unsigned long long seed = 1, number;
static fz program;

/* Where a program was when something ended it. */
static void where(int signal_number)
{
    char text[256];
    int n = snprintf(
        text, sizeof text, "abi: signal %d in %s: --seed %llu --program %llu\n",
        signal_number, program.calling ? program.calling : "no call", seed,
        number);
    if (n > 0 && write(2, text, (size_t)n) != n)
        _exit(2);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static void limit_memory(void)
{
#ifndef SANITIZED
    /* As __asan_default_options does elsewhere. */
    struct rlimit limit = {(rlim_t)3 << 30, (rlim_t)3 << 30};
    setrlimit(RLIMIT_AS, &limit);
#endif
}

/* How often each function succeeded. */
static void print_counts(void)
{
    for (size_t i = 0; i < fz_row_count; i++)
        if (fz_callable(&fz_rows[i]))
            printf("%8lu %s\n", fz_worked[i], fz_rows[i].name);
}

static unsigned long long value_of(int argc, char **argv, int *i)
{
    if (*i + 1 >= argc) {
        fprintf(stderr, "abi: %s needs a number\n", argv[*i]);
        exit(2);
    }
    return strtoull(argv[++*i], NULL, 0);
}

static void run(bool trace, bool no_memory, bool empty_lists)
{
    program = (fz){.state = seed * 0x9e3779b97f4a7c15u + number,
                   .trace = trace,
                   .no_memory = no_memory,
                   .empty_lists = empty_lists};
    /* The first draws of neighbours are alike. */
    for (int i = 0; i < 4; i++)
        program.state = (uint64_t)fz_u32(&program) << 32 | fz_u32(&program);
    alarm(120);
    fz_run(&program, PROGRAM);
}

int main(int argc, char **argv)
{
    unsigned long long calls = 100000;
    bool one = false, trace = false, no_memory = false, counts = false,
         empty_lists = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--calls"))
            calls = value_of(argc, argv, &i);
        else if (!strcmp(argv[i], "--seed"))
            seed = value_of(argc, argv, &i);
        else if (!strcmp(argv[i], "--program"))
            number = value_of(argc, argv, &i), one = true;
        else if (!strcmp(argv[i], "--trace"))
            trace = true;
        else if (!strcmp(argv[i], "--counts"))
            counts = true;
        else if (!strcmp(argv[i], "--empty-lists"))
            empty_lists = true;
        else if (!strcmp(argv[i], "--no-memory"))
            no_memory = true;
        else {
            fprintf(stderr,
                    "usage: abi [--calls N] [--seed S] [--program P] "
                    "[--no-memory] [--empty-lists] [--trace] [--counts]\n");
            return 2;
        }
    }
    limit_memory();
    signal(SIGABRT, where);
    signal(SIGALRM, where);
#ifndef SANITIZED
    signal(SIGSEGV, where);
    signal(SIGFPE, where);
#endif
    do {
        run(trace, no_memory, empty_lists);
        number++;
    } while (!one && fz_calls < calls);
    if (counts)
        print_counts();
    size_t there = 0;
    for (size_t i = 0; i < fz_row_count; i++)
        there += fz_callable(&fz_rows[i]);
    printf("abi: %llu calls in %llu programs, %zu of %zu functions, %ld "
           "reports, %ld closures entered\n",
           fz_calls, one ? 1 : number, there, fz_row_count, (long)fz_reports,
           (long)fz_entered);
    return 0;
}
