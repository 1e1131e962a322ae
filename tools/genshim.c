/* genshim.c: genshim OUT.S FUNCTIONS.tsv SOURCE.c...
 *
 * Writes a jump for each function of the table that one of the sources calls:
 * the jump goes through a slot of qn_shim_table, which src/ext/resolve.c
 * fills when it has opened the library.  Names are found as text ("mlx_add("),
 * so the list follows the code. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024, NAME = 96 };

static char names[MOST][NAME];
static int used[MOST];
static int count;

static char *read_all(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "genshim: %s: can't be read\n", path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = size >= 0 ? malloc((size_t)size + 1) : NULL;
    if (!text || fread(text, 1, (size_t)size, file) != (size_t)size) {
        fprintf(stderr, "genshim: %s: can't be read\n", path);
        exit(1);
    }
    text[size] = '\0';
    fclose(file);
    return text;
}

static void read_table(const char *path)
{
    char *text = read_all(path);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        const char *tab = strchr(line, '\t');
        if (*line == '#' || !tab || count == MOST)
            continue;
        size_t n = strcspn(tab + 1, "\t");
        if (n < NAME) {
            memcpy(names[count], tab + 1, n);
            names[count++][n] = '\0';
        }
    }
    free(text);
}

static void scan(const char *path)
{
    char *text = read_all(path);
    for (const char *p = text; (p = strstr(p, "mlx_"));) {
        size_t n = 0;
        /* One name begins with an underscore: _mlx_error. */
        if (p > text && p[-1] == '_')
            p--;
        while (isalnum((unsigned char)p[n]) || p[n] == '_')
            n++;
        for (int i = 0; i < count; i++)
            if (strlen(names[i]) == n && !memcmp(names[i], p, n))
                used[i] = 1;
        p += n;
    }
    free(text);
}

#ifdef __APPLE__
#define SYMBOL "_%s"
#define TABLE "_qn_shim_"
#else
#define SYMBOL "%s"
#define TABLE "qn_shim_"
#endif

/* Symbols of this program alone, so that the jumps need no indirection. */
#ifdef __APPLE__
#define HIDDEN ".private_extern "
#else
#define HIDDEN ".hidden "
#endif

#ifdef __aarch64__
#define CLOSED "    mov x0, #0\n    ret\n"
#else
#define CLOSED "    xorl %%eax, %%eax\n    ret\n"
#endif

static void write_jump(FILE *out, const char *name, int slot)
{
    fprintf(out, ".globl " SYMBOL "\n" HIDDEN SYMBOL "\n" SYMBOL ":\n", name,
            name, name);
#if defined(__aarch64__) && defined(__APPLE__)
    fprintf(out, "    adrp x16, " TABLE "table@PAGE\n"
                 "    add x16, x16, " TABLE "table@PAGEOFF\n");
#elif defined(__aarch64__)
    fprintf(out, "    adrp x16, " TABLE "table\n"
                 "    add x16, x16, :lo12:" TABLE "table\n");
#endif
#if defined(__aarch64__)
    fprintf(out, "    ldr x16, [x16, #%d]\n    br x16\n", slot * 8);
#else
    fprintf(out, "    jmp *" TABLE "table+%d(%%rip)\n", slot * 8);
#endif
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: genshim OUT.S FUNCTIONS.tsv SOURCE...\n");
        return 2;
    }
    read_table(argv[2]);
    for (int i = 3; i < argc; i++)
        scan(argv[i]);
    FILE *out = fopen(argv[1], "w");
    if (!out) {
        fprintf(stderr, "genshim: %s: can't be written\n", argv[1]);
        return 1;
    }
    int slots = 0;
    fprintf(out, "/* Made by tools/genshim.c. */\n.text\n");
    for (int i = 0; i < count; i++)
        if (used[i])
            write_jump(out, names[i], slots++);
    fprintf(out, ".globl " TABLE "closed\n" HIDDEN TABLE "closed\n" TABLE
                 "closed:\n" CLOSED);
    fprintf(out, ".data\n.p2align 3\n.globl " TABLE "names\n" HIDDEN TABLE
                 "names\n" TABLE "names:\n");
    for (int i = 0, slot = 0; i < count; i++)
        if (used[i])
            fprintf(out, "    .quad Lname%d\n", slot++);
    /* Until a library is open, a call gives 0: no handle, nothing to free. */
    fprintf(out,
            ".globl " TABLE "table\n" HIDDEN TABLE "table\n" TABLE "table:\n");
    for (int i = 0; i < slots; i++)
        fprintf(out, "    .quad " TABLE "closed\n");
    fprintf(out,
            ".globl " TABLE "count\n" HIDDEN TABLE "count\n" TABLE
            "count:\n    .long %d\n",
            slots);
    for (int i = 0, slot = 0; i < count; i++)
        if (used[i])
            fprintf(out, "Lname%d: .asciz \"%s\"\n", slot++, names[i]);
#ifndef __APPLE__
    fprintf(out, ".section .note.GNU-stack,\"\",%%progbits\n");
#endif
    return ferror(out) || fclose(out) ? 1 : 0;
}
