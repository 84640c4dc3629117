// Calls: recursion, pointers to functions, virtual functions, printf, assert, the heap.
#include <cassert>
#include <climits>
#include <cstdio>

__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
extern "C" __global__ void recursion_ackermann(unsigned* y) { y[threadIdx.x] = ackermann(threadIdx.x % 3, threadIdx.x / 3); }

// Adds the leaves of an implicit tree that are below a bound.
__device__ __noinline__ int tree_sum(const int* tree, int node, int n, int bound) {
    if (node >= n) return 0;
    int here = tree[node] < bound ? tree[node] : 0;
    return here + tree_sum(tree, 2 * node + 1, n, bound) + tree_sum(tree, 2 * node + 2, n, bound);
}
extern "C" __global__ void recursion_tree(const int* tree, const int* bound, int* y, int n) {
    y[threadIdx.x] = tree_sum(tree, 0, n, bound[threadIdx.x]);
}

typedef float (*Unary)(float);
__device__ float square(float v) { return v * v; }
__device__ float negate(float v) { return -v; }
__device__ float half_of(float v) { return 0.5f * v; }
__device__ float clipped(float v) { return fminf(fmaxf(v, -1.0f), 1.0f); }
__device__ Unary table[4] = {square, negate, half_of, clipped};

extern "C" __global__ void pointers_to_functions(const float* x, const int* which, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = table[which[i]](x[i]);
}

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Rectangle : Shape {
    float a, b;
    __device__ Rectangle(float a, float b) : a(a), b(b) {}
    __device__ float area() const override { return a * b; }
};
struct Square : Rectangle {
    __device__ Square(float a) : Rectangle(a, a) {}
    __device__ float area() const override { return a * a + 0.0f; }
};
struct Triangle : Shape {
    float a, h;
    __device__ Triangle(float a, float h) : a(a), h(h) {}
    __device__ float area() const override { return 0.5f * a * h; }
};
__device__ __noinline__ float area_of(const Shape* s) { return s->area(); }
extern "C" __global__ void virtual_functions(const float* a, const float* b, const int* kind, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Rectangle r(a[i], b[i]);
    Square s(a[i]);
    Triangle t(a[i], b[i]);
    const Shape* shape = kind[i] == 0 ? (const Shape*)&r : kind[i] == 1 ? (const Shape*)&s : (const Shape*)&t;
    y[i] = area_of(shape);
}

extern "C" __global__ void printing(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (x[i] < 0) printf("block %d thread %d: %d is negative, %s %f\n", blockIdx.x, threadIdx.x, x[i], "half", x[i] / 2.0);
    y[i] = abs(x[i]);
}

extern "C" __global__ void asserting(const int* x, int* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    assert(x[i] >= 0 && x[i] < n);
    y[x[i]] = i;
}

// Structures go in and out by value and by reference.
struct Span { int low, high; long long sum; char tag[5]; };
__device__ __noinline__ Span grow(Span s, int v) {
    s.low = min(s.low, v), s.high = max(s.high, v), s.sum += v;
    s.tag[v & 3]++;
    return s;
}
__device__ __noinline__ void shrink(Span& s) { s.tag[4] = s.tag[0] + s.tag[1] + s.tag[2] + s.tag[3]; }
extern "C" __global__ void structures_by_value(const int* x, int* low, int* high, long long* sum, int* tag, int each) {
    Span s = {INT_MAX, INT_MIN, 0, {}};
    for (int k = 0; k < each; k++) s = grow(s, x[threadIdx.x * each + k]);
    shrink(s);
    low[threadIdx.x] = s.low, high[threadIdx.x] = s.high, sum[threadIdx.x] = s.sum, tag[threadIdx.x] = s.tag[4];
}

// A list on the heap of the device.
struct Node { int value; Node* next; };
extern "C" __global__ void heap_list(const int* x, int* y, int each) {
    Node* list = nullptr;
    for (int k = 0; k < each; k++) list = new Node{x[threadIdx.x * each + k], list};
    int sign = 1, sum = 0;
    while (list) {
        sum += sign * list->value, sign = -sign;
        Node* next = list->next;
        delete list;
        list = next;
    }
    y[threadIdx.x] = sum;
}

// A switch with a jump table.
extern "C" __global__ void interpreter(const unsigned char* program, const int* x, int* y, int length) {
    int a = x[threadIdx.x], b = threadIdx.x, at = 0;
    while (at < length) {
        switch (program[at++]) {
        case 0: a += b; break;
        case 1: a -= b * 3; break;
        case 2: a *= 7; break;
        case 3: a ^= a >> 3; break;
        case 4: { int swap = a; a = b, b = swap; break; }
        case 5: if (a & 1) at++; break;
        case 6: b = __brev(b); break;
        case 7: a = __popc(a) + b; break;
        case 8: a = max(a, b); break;
        default: at = length;
        }
    }
    y[threadIdx.x] = a;
}
