/* Gated delta nets: the engine's kernel and the fallback against sums in
 * double, and bits that do not depend on how a sequence was cut. */
#include "support/qn_test.h"

#include "mlx/c/mlx.h"
#include "quern/ext.h"

#include <math.h>

int fallback_gated_delta(mlx_array *, mlx_array *, mlx_array *, mlx_array,
                         mlx_array, mlx_array, mlx_array, mlx_array, mlx_array,
                         mlx_array, mlx_array, int, mlx_stream);

typedef int (*engine)(mlx_array *, mlx_array *, mlx_array *, mlx_array,
                      mlx_array, mlx_array, mlx_array, mlx_array, mlx_array,
                      mlx_array, mlx_array, int, mlx_stream);

enum { TAPS = 4, LENGTH = 23, MOST = 1 << 16 };

typedef struct shape {
    int key_heads, heads, dk, dv;
} shape;

static const shape shapes[] = {
    {1, 1, 8, 8},   {2, 4, 16, 16},   {2, 2, 12, 20},
    {1, 3, 32, 70}, {2, 6, 128, 128}, {1, 1, 3, 5},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static mlx_stream stream;

static int open_stream(void **state)
{
    (void)state;
    stream = mlx_default_cpu_stream_new();
    return !stream.ctx;
}

static int close_stream(void **state)
{
    (void)state;
    return mlx_stream_free(stream);
}

static int channels_of(const shape *s)
{
    return 2 * s->key_heads * s->dk + s->heads * s->dv;
}

static float number(int what, int row, int i)
{
    return sinf((float)(what * 37) + 1.7f * (float)row + 0.61f * (float)i) *
           (1 + 0.3f * (float)(i % 5));
}

static mlx_array make(int what, int first, int rows, int width)
{
    float *data = malloc((size_t)(rows * width) * sizeof *data);
    assert_non_null(data);
    for (int t = 0; t < rows; t++)
        for (int i = 0; i < width; i++)
            data[t * width + i] = number(what, first + t, i);
    int dims[2] = {rows, width};
    /* a_log and dt_bias are vectors. */
    bool flat = what == 4 || what == 5;
    mlx_array x = flat ? mlx_array_new_data(data, &width, 1, MLX_FLOAT32)
                       : mlx_array_new_data(data, dims, 2, MLX_FLOAT32);
    free(data);
    return x;
}

static mlx_array zeros(const int *dims, size_t ndim)
{
    mlx_array x = mlx_array_new();
    assert_int_equal(mlx_zeros(&x, dims, ndim, MLX_FLOAT32, stream), 0);
    return x;
}

/* The sequence in pieces; results at `out`, the last state at `last`. */
static void run(engine e, const shape *s, int piece, float *out, float *last)
{
    int c = channels_of(s), width = s->heads * s->dv;
    mlx_array tail = zeros((int[]){TAPS - 1, c}, 2);
    mlx_array state = zeros((int[]){s->heads, s->dk, s->dv}, 3);
    mlx_array filter = make(3, 0, TAPS, c), a_log = make(4, 0, 1, s->heads);
    mlx_array bias = make(5, 0, 1, s->heads);
    for (int at = 0; at < LENGTH; at += piece) {
        int n = LENGTH - at < piece ? LENGTH - at : piece;
        mlx_array x = make(0, at, n, c), a = make(1, at, n, s->heads);
        mlx_array b = make(2, at, n, s->heads), y = mlx_array_new();
        assert_int_equal(e(&y, &tail, &state, x, a, b, filter, a_log, bias,
                           tail, state, s->key_heads, stream),
                         0);
        mlx_array all[] = {y, tail, state};
        mlx_vector_array list = mlx_vector_array_new_data(all, 3);
        assert_int_equal(mlx_eval(list), 0);
        mlx_vector_array_free(list);
        memcpy(out + at * width, mlx_array_data_float32(y),
               mlx_array_nbytes(y));
        mlx_array_free(x);
        mlx_array_free(a);
        mlx_array_free(b);
        mlx_array_free(y);
    }
    memcpy(last, mlx_array_data_float32(state), mlx_array_nbytes(state));
    mlx_array_free(tail);
    mlx_array_free(state);
    mlx_array_free(filter);
    mlx_array_free(a_log);
    mlx_array_free(bias);
}

static double mixed(const shape *s, int row, int channel)
{
    double sum = 0;
    (void)s;
    for (int t = 0; t < TAPS; t++)
        if (row + t - (TAPS - 1) >= 0)
            sum += (double)number(0, row + t - (TAPS - 1), channel) *
                   (double)number(3, t, channel);
    return sum / (1 + exp(-sum));
}

static void unit(double *x, int n, double scale)
{
    double sum = 1e-6;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        x[i] *= scale / sqrt(sum);
}

static void check_head(const shape *s, int head, const float *found)
{
    double q[128], k[128], *S = calloc((size_t)(s->dk * s->dv), sizeof *S);
    assert_non_null(S);
    int group = head / (s->heads / s->key_heads);
    for (int t = 0; t < LENGTH; t++) {
        for (int i = 0; i < s->dk; i++) {
            q[i] = mixed(s, t, group * s->dk + i);
            k[i] = mixed(s, t, (s->key_heads + group) * s->dk + i);
        }
        unit(q, s->dk, 1 / sqrt(s->dk));
        unit(k, s->dk, 1);
        double decay = exp(-exp((double)number(4, 0, head)) *
                           log1p(exp((double)number(1, t, head) +
                                     (double)number(5, 0, head))));
        double beta = 1 / (1 + exp(-(double)number(2, t, head)));
        for (int j = 0; j < s->dv; j++) {
            double seen = 0, y = 0;
            for (int i = 0; i < s->dk; i++)
                seen += k[i] * (S[i * s->dv + j] *= decay);
            double v = mixed(s, t, 2 * s->key_heads * s->dk + head * s->dv + j);
            for (int i = 0; i < s->dk; i++)
                y += q[i] * (S[i * s->dv + j] += k[i] * beta * (v - seen));
            float one = found[(t * s->heads + head) * s->dv + j];
            assert_true(fabs((double)one - y) < 2e-5 * (1 + fabs(y)));
        }
    }
    free(S);
}

static void test_numbers(void **state)
{
    (void)state;
    static float out[MOST], last[4 * MOST];
    for (int i = 0; i < SHAPES; i++)
        for (int f = 0; f < 2; f++) {
            run(f ? fallback_gated_delta : quern_gated_delta, &shapes[i],
                LENGTH, out, last);
            for (int h = 0; h < shapes[i].heads; h++)
                check_head(&shapes[i], h, out);
        }
}

static void test_bits_do_not_depend_on_the_cut_or_threads(void **state)
{
    (void)state;
    static float whole[MOST], out[MOST], last[2][4 * MOST];
    static const int pieces[] = {1, 2, 3, 7, 22};
    for (int i = 0; i < SHAPES; i++) {
        const shape *s = &shapes[i];
        size_t size = (size_t)(LENGTH * s->heads * s->dv) * sizeof(float);
        size_t matrix = (size_t)(s->heads * s->dk * s->dv) * sizeof(float);
        run(quern_gated_delta, s, LENGTH, whole, last[0]);
        for (int p = 0; p < 5; p++) {
            assert_int_equal(quern_set_threads(1 + p), 0);
            run(quern_gated_delta, s, pieces[p], out, last[1]);
            assert_memory_equal(out, whole, size);
            assert_memory_equal(last[1], last[0], matrix);
        }
    }
    assert_int_equal(quern_set_threads(0), 0);
}

static void quiet(const char *msg, void *data)
{
    (void)msg;
    (void)data;
}

static void test_what_does_not_fit_is_refused(void **state)
{
    (void)state;
    const shape *s = &shapes[1];
    int c = channels_of(s);
    mlx_set_error_handler(quiet, NULL, NULL);
    for (int wrong = 0; wrong < 10; wrong++) {
        mlx_array in[8] = {
            make(0, 0, 3, c + (wrong == 0)),
            make(1, 0, 3 + (wrong == 1), s->heads),
            make(2, 0, 3, s->heads + (wrong == 2)),
            make(3, 0, wrong == 3 ? 1 : TAPS, c),
            make(4, 0, 1, s->heads + (wrong == 4)),
            make(5, 0, 1, s->heads + (wrong == 5)),
            zeros((int[]){TAPS - 1 + (wrong == 6), c}, 2),
            zeros((int[]){s->heads, s->dk + (wrong == 7), s->dv}, 3)};
        mlx_array y = mlx_array_new(), tail = mlx_array_new(),
                  last = mlx_array_new();
        int heads = wrong == 8 ? 3 : wrong == 9 ? 0 : s->key_heads;
        assert_int_equal(quern_gated_delta(&y, &tail, &last, in[0], in[1],
                                           in[2], in[3], in[4], in[5], in[6],
                                           in[7], heads, stream),
                         1);
        char *message = quern_error_take();
        assert_non_null(message);
        assert_non_null(strstr(message, "[gated_delta]"));
        free(message);
        for (int i = 0; i < 8; i++)
            mlx_array_free(in[i]);
        mlx_array_free(y);
        mlx_array_free(tail);
        mlx_array_free(last);
    }
    mlx_set_error_handler(NULL, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_bits_do_not_depend_on_the_cut_or_threads),
        cmocka_unit_test(test_what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, open_stream, close_stream);
}
