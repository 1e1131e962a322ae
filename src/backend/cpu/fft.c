/* fft.c: Fourier transforms: the reference's lines, shared among threads, with
 * the passes of this processor. */
#include "cpu.h"

#include "backend/ref/fft.h"
#include "backend/cpu/kernels/fft/fft.h"
#include "pool.h"

/* Elements of a range that is not split. */
enum { GRAIN = 4096 };

typedef struct share {
    const qn_fft_job *job;
    char *rooms;
    size_t stride;
} share;

static void run_lines(void *ctx, size_t begin, size_t end, int worker)
{
    const share *s = ctx;
    void *room = s->rooms + (size_t)worker * s->stride;
    qn_fft_job_lines(s->job, begin, end - begin, room);
}

qn_status qn_cpu_fft(qn_node *node, bool *done)
{
    qn_fft_pass_fn pass = qn_cpu_fft_pick();
    qn_fft_job job;
    share s = {.job = &job};
    qn_buffer *rooms = NULL;
    qn_status status =
        qn_fft_job_begin(&job, node, pass ? pass : qn_ref_fft_pass);
    *done = true;
    if (!status && job.out->size) {
        status =
            qn_cpu_scratch(&rooms, (size_t)qn_pool_threads(),
                           qn_fft_job_room(&job) * sizeof(double), &s.stride);
        if (!status) {
            s.rooms = rooms->data;
            qn_pool_split(run_lines, &s, job.lines.outer.nruns,
                          GRAIN / job.n + 1, job.lanes);
        }
    }
    qn_buffer_unref(rooms);
    qn_fft_job_end(&job);
    return status;
}
