/* replay.c: runs a fuzz target over files, without a fuzzer.
 *
 * replay PATH...: each file, and each file in each directory, once.  Linked
 * with one target it is an ordinary test: a finding ends it. */
#include "fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

static size_t files;

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    struct stat info;
    int failed = fstat(fileno(file), &info);
    size_t size = failed ? 0 : (size_t)info.st_size;
    /* Exactly as long as the input, so that a sanitizer sees its end. */
    uint8_t *data = malloc(size ? size : 1);
    failed = failed || !data || fread(data, 1, size, file) != size;
    fclose(file);
    if (failed) {
        fprintf(stderr, "%s: cannot be read\n", path);
    } else {
        fprintf(stderr, "%s\n", path);
        LLVMFuzzerTestOneInput(data, size);
        files++;
    }
    free(data);
    return failed;
}

static int run_directory(const char *path, DIR *dir)
{
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        failed |= run_file(name);
    }
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        failed |= dir ? run_directory(argv[i], dir) : run_file(argv[i]);
        if (dir)
            closedir(dir);
    }
    if (!files)
        fprintf(stderr, "%s: no input\n", argv[0]);
    return failed || !files;
}
