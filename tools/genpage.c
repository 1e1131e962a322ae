/* genpage.c: genpage OUT PAGE
 *
 * Writes the C file that holds src/web/page.html, and the policy with which it
 * is sent: only what stands between <style> and <script> here may run, which
 * the policy names by its digests, and only requests to the server that sent
 * it are allowed. */
#include "base/base64.h"
#include "base/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char page[1 << 20];

static void stop(const char *sentence, const char *name)
{
    fprintf(stderr, "genpage: %s: %s\n", name, sentence);
    exit(1);
}

static size_t read_page(const char *name)
{
    FILE *in = fopen(name, "rb");
    if (!in)
        stop("it can't be read", name);
    size_t size = fread(page, 1, sizeof page - 1, in);
    if (ferror(in) || size == sizeof page - 1)
        stop("it can't be read, or is larger than 1 MiB", name);
    fclose(in);
    return size;
}

/* "'sha256-...'" of what stands between two tags, which are there once. */
static void add_digest(qn_buf *out, const char *open, const char *close)
{
    char hex[QN_DIGEST_SIZE];
    unsigned char bytes[32];
    qn_digest digest;
    const char *from = strstr(page, open), *to = from ? strstr(from, close) : 0;
    if (!to || strstr(to, open))
        stop("expected it once", open);
    from += strlen(open);
    qn_digest_begin(&digest, QN_SHA256);
    qn_digest_add(&digest, from, (size_t)(to - from));
    qn_digest_end(&digest, hex);
    for (size_t i = 0; i < sizeof bytes; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], 0};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    qn_buf_add_text(out, "'sha256-");
    qn_base64_encode(out, bytes, sizeof bytes);
    qn_buf_add_text(out, "'");
}

static void add_policy(qn_buf *out)
{
    qn_buf_add_text(out, "default-src 'none'; script-src ");
    add_digest(out, "<script>", "</script>");
    qn_buf_add_text(out, "; style-src ");
    add_digest(out, "<style>", "</style>");
    /* The icon is an empty data: address, so that browsers ask for none. */
    qn_buf_add_text(out, "; connect-src 'self'; img-src data:; "
                         "base-uri 'none'; form-action 'none'; "
                         "frame-ancestors 'none'; "
                         "require-trusted-types-for 'script'; "
                         "trusted-types 'none'");
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fputs("usage: genpage OUT PAGE\n", stderr);
        return 2;
    }
    size_t size = read_page(argv[2]);
    qn_buf policy = QN_BUF_INIT;
    add_policy(&policy);
    FILE *out = fopen(argv[1], "w");
    if (!out || qn_buf_status(&policy))
        stop("it can't be written", argv[1]);
    fprintf(out,
            "#include \"web/page.h\"\n\nstatic const unsigned char page[] = {");
    for (size_t i = 0; i < size; i++)
        fprintf(out, "%s%d,", i % 20 ? "" : "\n", (unsigned char)page[i]);
    fprintf(out,
            "\n};\n\nconst qn_server_page qn_web_page = {\n"
            "    (const char *)page, sizeof page,\n    \"%s\"};\n",
            policy.data);
    qn_buf_free(&policy);
    if (fclose(out))
        stop("it can't be written", argv[1]);
    return 0;
}
