/* progress.c: how far a long step has come, on stderr.
 *
 * On a terminal a line that is written over; else a line every five seconds
 * or ten per cent; with --progress json an object a line. */
#include "cli.h"

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

void qn_progress_set(qn_progress *progress, int64_t done, int64_t total)
{
    double now = qn_cli_now(), spent = now - progress->began;
    double rate = spent > 0 ? (double)done / spent : 0;
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
        fprintf(stderr, "\r%s [%s] %3d%%  %lld/%lld %s  %.1f %s/s  eta %.0f s ",
                progress->phase, bar, percent, (long long)done,
                (long long)total, progress->unit, rate, progress->unit, left);
        progress->open = true;
        break;
    }
    case QN_PROGRESS_PLAIN:
        if (spent < 5 || (now - progress->shown < 5 && !steps))
            return;
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
