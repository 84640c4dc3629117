// Divisions by zero, and what is no number.
#include "bug.h"

// mean_of_an_empty_bin: grid 1, block 8, n 64, zero
KERNEL(mean_of_an_empty_bin) {
    int sum = 0, count = 0;
    for (int i = 0; i < n; i++)
        if (x[i] / 16 == threadIdx.x) sum += x[i], count++;
    y[threadIdx.x] = BUG(sum / count, count ? sum / count : 0);  //!
}

// slot_modulo_nothing: grid 1, block 64, n 64
KERNEL(slot_modulo_nothing) {
    int slots = n BUG(/ 128, / 8);
    y[threadIdx.x] = x[threadIdx.x] % slots;  //!
}

// zero_over_zero: grid 1, block 64
KERNEL(zero_over_zero) {
    int row = threadIdx.x / 8, low = 0;
    for (int k = 0; k < 8; k++) low += x[row * 8 + k] < 5;
    float weight = x[threadIdx.x] < 5 ? 1.0f : 0.0f;
    float share = BUG(weight / low, low ? weight / low : 0.0f);  //!
    y[threadIdx.x] = __float_as_int(share);
}

// variance_below_zero: grid 1, block 32
KERNEL(variance_below_zero) {
    float mean = 1000.0f + x[threadIdx.x] * 0.001f, square = mean * mean - 1.0f;
    float variance = square - mean * mean;
    y[threadIdx.x] = __float_as_int(sqrtf(BUG(variance, fmaxf(variance, 0.0f))));  //!
}

// logarithm_of_zero: grid 1, block 64
KERNEL(logarithm_of_zero) {
    float p = x[threadIdx.x] < 50 ? 0.0f : x[threadIdx.x] * 0.01f;
    y[threadIdx.x] = __float_as_int(p * __logf(p BUG(, + 1e-6f)));  //!
}

// softmax_without_maximum: grid 1, block 32
KERNEL(softmax_without_maximum) {
    float v = x[threadIdx.x] * 2.0f, most = v;
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    float e = expf(v BUG(, - most)), sum = e;  //!
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);  //!
    y[threadIdx.x] = __float_as_int(e / sum);  //!
}
