#include "tessera/ops/cpu/product.h"

#include <cblas.h>
#include <dlfcn.h>

#include <initializer_list>

#include "tessera/ops/cpu/packed_product.h"

namespace tessera::cpu {

namespace {

CBLAS_TRANSPOSE cblas(Transpose transpose) {
  return transpose == Transpose::yes ? CblasTrans : CblasNoTrans;
}

}  // namespace

#if defined(__AVX512F__)

void multiply(const Factors<float>& factors, Result result, float* c, int64_t ldc, float* scratch) {
  packed_product(factors, result, c, ldc, nullptr, scratch);
}

void multiply_then(const Factors<float>& factors, const Continuation<float>& continuation, float* scratch) {
  packed_product(factors, Result::set, nullptr, 0, &continuation, scratch);
}

Packed<float> pack(Transpose transpose, int64_t depth, int64_t columns, const float* b, int64_t ldb, float* room) {
  return pack_factor(transpose, depth, columns, b, ldb, room);
}

void multiply_packed(int64_t m, int64_t columns, int64_t depth, const float* a, int64_t lda, const Packed<float>& b,
                     Result result, float* c, int64_t ldc, float* scratch) {
  product_with_packed(m, columns, depth, a, lda, b, result, c, ldc, scratch);
}

#else

void multiply(const Factors<float>& f, Result result, float* c, int64_t ldc, float*) {
  cblas_sgemm(CblasRowMajor, cblas(f.transpose_a), cblas(f.transpose_b), static_cast<int>(f.m), static_cast<int>(f.n),
              static_cast<int>(f.k), 1, f.a, static_cast<int>(f.lda), f.b, static_cast<int>(f.ldb),
              result == Result::add ? 1 : 0, c, static_cast<int>(ldc));
}

void multiply_then(const Factors<float>& factors, const Continuation<float>& continuation, float* scratch) {
  multiply(factors, Result::set, scratch, factors.n, nullptr);
  continuation.then(0, factors.m, 0, factors.n, scratch, factors.n);
}

Packed<float> pack(Transpose transpose, int64_t depth, int64_t columns, const float* b, int64_t ldb, float*) {
  return {transpose, depth, columns, b, ldb};
}

void multiply_packed(int64_t m, int64_t columns, int64_t depth, const float* a, int64_t lda, const Packed<float>& b,
                     Result result, float* c, int64_t ldc, float* scratch) {
  multiply(Factors<float>{Transpose::no, b.transpose, m, columns, depth, a, lda, b.at, b.ld}, result, c, ldc, scratch);
}

#endif

void multiply(const Factors<double>& f, Result result, double* c, int64_t ldc, double*) {
  cblas_dgemm(CblasRowMajor, cblas(f.transpose_a), cblas(f.transpose_b), static_cast<int>(f.m), static_cast<int>(f.n),
              static_cast<int>(f.k), 1, f.a, static_cast<int>(f.lda), f.b, static_cast<int>(f.ldb),
              result == Result::add ? 1 : 0, c, static_cast<int>(ldc));
}

void multiply_then(const Factors<double>& factors, const Continuation<double>& continuation, double* scratch) {
  multiply(factors, Result::set, scratch, factors.n, nullptr);
  continuation.then(0, factors.m, 0, factors.n, scratch, factors.n);
}

Packed<double> pack(Transpose transpose, int64_t depth, int64_t columns, const double* b, int64_t ldb, double*) {
  return {transpose, depth, columns, b, ldb};
}

void multiply_packed(int64_t m, int64_t columns, int64_t depth, const double* a, int64_t lda, const Packed<double>& b,
                     Result result, double* c, int64_t ldc, double* scratch) {
  multiply(Factors<double>{Transpose::no, b.transpose, m, columns, depth, a, lda, b.at, b.ld}, result, c, ldc, scratch);
}

void use_one_blas_thread() {
  // A library that offers none of these (the reference BLAS) has no threads. BLIS counts in its 64-bit dim_t.
  for (const char* name : {"openblas_set_num_threads", "MKL_Set_Num_Threads"}) {
    if (void* function = dlsym(RTLD_DEFAULT, name)) reinterpret_cast<void (*)(int)>(function)(1);
  }
  if (void* function = dlsym(RTLD_DEFAULT, "bli_thread_set_num_threads")) {
    reinterpret_cast<void (*)(int64_t)>(function)(1);
  }
}

}  // namespace tessera::cpu
