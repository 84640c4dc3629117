// Functions of single precision from libdevice, precise and fast.

#define EACH(name, ...)                                                     \
    extern "C" __global__ void name(const float* x, float* y, int n) {       \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                       \
        if (i >= n) return;                                                  \
        float v = x[i], r[] = {__VA_ARGS__};                                 \
        for (int k = 0; k < sizeof r / sizeof *r; k++) y[k * n + i] = r[k];  \
    }

EACH(trigonometry, sinf(v), cosf(v), tanf(v), asinf(v / 1e4f), acosf(v / 1e4f), atanf(v), sinpif(v), cospif(v))
EACH(hyperbolic, sinhf(v), coshf(v), tanhf(v), asinhf(v), acoshf(fabsf(v) + 1.0f), atanhf(v / 100.0f))
EACH(exponentials, expf(v), exp2f(v), exp10f(v), expm1f(v), logf(v), log2f(v), log10f(v), log1pf(v))
EACH(special, erff(v), erfcf(v), normcdff(v), tgammaf(v), lgammaf(v), j0f(v), cyl_bessel_i0f(v), erfinvf(v / 100.0f))
EACH(roots, sqrtf(v), cbrtf(v), rsqrtf(v), rcbrtf(v), hypotf(v, 3.0f), rhypotf(v, 4.0f), 1.0f / v)
EACH(rounding, floorf(v), ceilf(v), truncf(v), rintf(v), roundf(v), nearbyintf(v), copysignf(v, -1.0f), fdimf(v, 2.0f))
EACH(parts, ldexpf(v, 5), logbf(v), fmodf(v, 1.7f), remainderf(v, 1.7f), nextafterf(v, 1e9f), fmaf(v, v, -1.0f), fminf(v, 0.5f))
EACH(directed, __fadd_rd(v, 0.1f), __fmul_ru(v, v), __fdiv_rz(v, 3.0f), __fsqrt_ru(fabsf(v)), __frcp_rd(v), __fmaf_rz(v, v, v),
     __int2float_rd(__float2int_ru(v) * 16777217), __uint2float_ru(4000000001u))

extern "C" __global__ void powers(const float* x, const float* p, float* y, float* s, float* c, int* e, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = powf(x[i], p[i]) + atan2f(p[i], x[i]);
    sincosf(p[i], &s[i], &c[i]);
    int exponent;
    frexpf(x[i], &exponent);
    e[i] = exponent + ilogbf(x[i]) + isnan(x[i]) + signbit(p[i]);
}
