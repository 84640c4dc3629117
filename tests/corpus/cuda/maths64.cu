// Functions of double precision from libdevice.

#define EACH(name, ...)                                                     \
    extern "C" __global__ void name(const double* x, double* y, int n) {     \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                       \
        if (i >= n) return;                                                  \
        double v = x[i], r[] = {__VA_ARGS__};                                \
        for (int k = 0; k < sizeof r / sizeof *r; k++) y[k * n + i] = r[k];  \
    }

EACH(trigonometry64, sin(v), cos(v), tan(v), asin(v / 1e5), acos(v / 1e5), atan(v), atan2(v, 2.0), sinpi(v))
EACH(hyperbolic64, sinh(v), cosh(v), tanh(v), asinh(v), acosh(fabs(v) + 1.0), atanh(v / 100.0))
EACH(exponentials64, exp(v), exp2(v), exp10(v), expm1(v), log(v), log2(v), log10(v), log1p(v), pow(v, 1.7))
EACH(special64, erf(v), erfc(v), tgamma(v), lgamma(v), j0(v), normcdf(v))
EACH(roots64, sqrt(v), cbrt(v), rsqrt(v), hypot(v, 3.0), 1.0 / v, fmod(v, 0.3), v / 7.0, remainder(v, 0.3))
EACH(rounding64, floor(v), ceil(v), trunc(v), rint(v), round(v), (double)llrint(v), (double)(float)v, (double)(unsigned)(int)v)
EACH(directed64, __dadd_rd(v, 0.1), __dmul_ru(v, v), __ddiv_rz(v, 3.0), __dsqrt_ru(fabs(v)), __drcp_rd(v), __fma_rz(v, v, v),
     (double)__double2float_rd(v), __ll2double_ru(9007199254740993ll))
