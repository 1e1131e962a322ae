/* fft.h: Fourier transforms along one axis of an array.
 *
 * A job knows the node's lines and its plan; ranges of lines can be computed
 * by any number of threads, each with a room of its own.  Arithmetic is in
 * double whatever the passes come from, and a result is rounded once. */
#ifndef QN_BACKEND_REF_FFT_H
#define QN_BACKEND_REF_FFT_H

#include "backend/common/fft.h"
#include "backend/common/plan.h"
#include "core/node.h"
#include "ops/params.h"

typedef struct qn_fft_job {
    qn_fft_plan plan;
    qn_fft_pass_fn run;
    const qn_array *in, *out;
    qn_lines lines; /* operands: input, output */
    qn_fft_form form;
    double scale;
    size_t n;      /* length of the complex or real line in full */
    size_t lanes;  /* lines that are computed side by side */
    bool halved;   /* a real line of even length as a complex one of half */
    double *roots; /* exp(-2 pi i k / n) for k up to n / 2, if halved */
} qn_fft_job;

/* The passes of the reference. */
void qn_ref_fft_pass(const qn_fft_pass *pass);

/* Gives the output storage.  The caller ends the job also after an error. */
qn_status qn_fft_job_begin(qn_fft_job *job, qn_node *node, qn_fft_pass_fn run);
void qn_fft_job_end(qn_fft_job *job);
/* Doubles in a room. */
size_t qn_fft_job_room(const qn_fft_job *job);
/* Lines first .. first + count - 1. */
void qn_fft_job_lines(const qn_fft_job *job, size_t first, size_t count,
                      double *room);

#endif
