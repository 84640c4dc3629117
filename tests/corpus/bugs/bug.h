// BUG(a, b) is a in the kernel with the mistake, and b in its twin.
#ifdef BUG_PLANTED
#define BUG(a, b) a
#else
#define BUG(a, b) b
#endif
#define KERNEL(name) extern "C" __global__ void name(const int* x, int* y, int n)
