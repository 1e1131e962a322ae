/* progress.c: how far a long step has come, on stderr.
 *
 * On a terminal a line that is written over; else a line every five seconds
 * or ten per cent; with --progress json an object a line. */
#include "cli.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void qn_progress_begin(qn_progress *progress, const qn_cli *cli,
                       const char *phase, const char *unit)
{
    const char *asked = cli->args.flag[QN_FLAG_PROGRESS].given
                            ? cli->args.flag[QN_FLAG_PROGRESS].text
                            : "auto";
    const char *term = getenv("TERM");
    bool terminal = isatty(STDERR_FILENO) && !getenv("NO_COLOR") &&
                    !(term && !strcmp(term, "dumb"));
    memset(progress, 0, sizeof *progress);
    progress->phase = phase;
    progress->unit = unit;
    progress->began = progress->shown = qn_cli_now();
    if (cli->quiet || !strcmp(asked, "none"))
        progress->kind = QN_PROGRESS_NONE;
    else if (!strcmp(asked, "json"))
        progress->kind = QN_PROGRESS_JSON;
    else if (!strcmp(asked, "bar") || (!strcmp(asked, "auto") && terminal))
        progress->kind = QN_PROGRESS_BAR;
    else
        progress->kind = QN_PROGRESS_PLAIN;
}

/* ---- bytes ---- */

static bool is_bytes(const qn_progress *progress)
{
    return !strcmp(progress->unit, "B");
}

typedef struct bytes_text {
    char done[QN_SIZE_TEXT], total[QN_SIZE_TEXT], rate[QN_SIZE_TEXT], eta[16];
} bytes_text;

static void spell_bytes(bytes_text *t, int64_t done, int64_t total, double rate,
                        double left)
{
    int seconds = left < 359999 ? (int)(left + 0.5) : 359999;
    qn_size_text(t->done, (uint64_t)done);
    qn_size_text(t->total, (uint64_t)total);
    qn_size_text(t->rate, (uint64_t)rate);
    if (seconds >= 3600)
        snprintf(t->eta, sizeof t->eta, "%d:%02d:%02d", seconds / 3600,
                 seconds / 60 % 60, seconds % 60);
    else
        snprintf(t->eta, sizeof t->eta, "%d:%02d", seconds / 60, seconds % 60);
}

/* The phase is the name of a file, which may be any length and hold anything;
 * qn_progress_phase has made it fit. */
static void show_bytes_bar(const qn_progress *progress, const char *bar,
                           int percent, int64_t done, int64_t total,
                           double rate, double left)
{
    bytes_text t;
    spell_bytes(&t, done, total, rate, left);
    fprintf(stderr, "\r%s  [%s] %3d%%  %s/%s  %s/s  eta %s \033[K",
            progress->phase, bar, percent, t.done, t.total, t.rate, t.eta);
}

static void show_bytes_line(const qn_progress *progress, int percent,
                            int64_t done, int64_t total, double rate,
                            double left)
{
    bytes_text t;
    spell_bytes(&t, done, total, rate, left);
    fprintf(stderr, "%s %d%%  %s/%s  %s/s  eta %s\n", progress->phase, percent,
            t.done, t.total, t.rate, t.eta);
}

void qn_progress_phase(qn_progress *progress, const char *name)
{
    enum { SHOWN = 40 };
    const char *slash = strrchr(name, '/');
    name = slash ? slash + 1 : name;
    size_t size = 0;
    for (; name[size] && size < SHOWN; size++) {
        unsigned char c = (unsigned char)name[size];
        progress->name[size] =
            c < 0x20 || c >= 0x7f || c == '"' || c == '\\' ? '?' : (char)c;
    }
    progress->name[size] = '\0';
    progress->phase = progress->name;
}

void qn_progress_set(qn_progress *progress, int64_t done, int64_t total)
{
    double now = qn_cli_now(), spent = now - progress->began;
    if (!progress->counting) {
        /* What was there before is no work of this run. */
        progress->counting = true;
        progress->first = is_bytes(progress) ? done : 0;
    }
    double rate = spent > 0 ? (double)(done - progress->first) / spent : 0;
    double left = rate > 0 ? (double)(total - done) / rate : 0;
    int percent = total > 0 ? (int)(done * 100 / total) : 100;
    int steps =
        total > 0 ? (int)((done - progress->shown_done) * 10 / total) : 0;
    switch (progress->kind) {
    case QN_PROGRESS_BAR: {
        /* What is over in an instant needs no bar. */
        if (spent < 0.3 || now - progress->shown < 0.05)
            return;
        char bar[24] = "";
        for (int i = 0; i < 20; i++)
            bar[i] = i * 5 < percent ? '=' : ' ';
        if (is_bytes(progress))
            show_bytes_bar(progress, bar, percent, done, total, rate, left);
        else
            fprintf(
                stderr, "\r%s [%s] %3d%%  %lld/%lld %s  %.1f %s/s  eta %.0f s ",
                progress->phase, bar, percent, (long long)done,
                (long long)total, progress->unit, rate, progress->unit, left);
        progress->open = true;
        break;
    }
    case QN_PROGRESS_PLAIN:
        if (spent < 5 || (now - progress->shown < 5 && !steps))
            return;
        if (is_bytes(progress))
            show_bytes_line(progress, percent, done, total, rate, left);
        else
            fprintf(stderr, "%s %d%% (%lld/%lld %s, %.1f/s)\n", progress->phase,
                    percent, (long long)done, (long long)total, progress->unit,
                    rate);
        break;
    case QN_PROGRESS_JSON:
        fprintf(stderr,
                "{\"event\":\"progress\",\"phase\":\"%s\",\"done\":%lld,"
                "\"total\":%lld,\"unit\":\"%s\",\"rate\":%.3f,\"eta_s\":%.3f}"
                "\n",
                progress->phase, (long long)done, (long long)total,
                progress->unit, rate, left);
        break;
    default:
        return;
    }
    progress->shown = now;
    progress->shown_done = done;
}

void qn_progress_end(qn_progress *progress)
{
    if (progress->open)
        fputs("\r\033[K", stderr);
    progress->open = false;
}
