// mlx.cpp: the additions of overhead.c with MLX's own C++ interface, which
// bench/overhead/overhead.sh compiles against the MLX of the Python package.
#include "overhead.h"

#include "mlx/mlx.h"

#include <chrono>
#include <vector>

namespace mx = mlx::core;

namespace {

double now()
{
    std::chrono::duration<double> t =
        std::chrono::steady_clock::now().time_since_epoch();
    return t.count();
}

// Eight floats, evaluated.
mx::array eight(float value)
{
    mx::array x = mx::full({8}, value, mx::float32);
    mx::eval(x);
    return x;
}

double chain(int count, float *check)
{
    mx::array x = eight(1), y = eight(2);
    double began = now();
    for (int i = 0; i < count; i++)
        x = mx::add(x, y);
    mx::eval(x);
    double took = now() - began;
    *check = x.data<float>()[7];
    return took;
}

double independent(int count, float *check)
{
    mx::array x = eight(1), y = eight(2);
    double began = now();
    std::vector<mx::array> sums;
    sums.reserve(count);
    for (int i = 0; i < count; i++)
        sums.push_back(mx::add(x, y));
    mx::eval(sums);
    float last = sums.back().data<float>()[7];
    sums.clear();
    double took = now() - began;
    *check = last;
    return took;
}

} // namespace

extern "C" __attribute__((visibility("default")))
const overhead_peer OVERHEAD_PEER = {"mlx", chain, independent};
