#include "tessera/ops/cpu/product.h"

#include <cblas.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <atomic>
#include <initializer_list>
#include <mutex>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/ops/cpu/packed_product.h"

// Null in a program whose BLAS library lacks the function. The function of BLIS takes a dim_t, which has 64 bits.
extern "C" {
[[gnu::weak]] void openblas_set_num_threads(int count);
[[gnu::weak]] void MKL_Set_Num_Threads(int count);
[[gnu::weak]] void bli_thread_set_num_threads(int64_t count);
}

namespace tessera::cpu {

namespace {

CBLAS_TRANSPOSE cblas(Transpose transpose) {
  return transpose == Transpose::yes ? CblasTrans : CblasNoTrans;
}

// Address space that is kept free for the buffers of OpenBLAS. Null: none.
std::atomic<void*> kept_space = nullptr;
size_t kept_bytes = 0;

void release_kept_space() {
  if (kept_space.load(std::memory_order_relaxed) == nullptr) return;
  if (void* const space = kept_space.exchange(nullptr)) munmap(space, kept_bytes);
}

// sgemm or dgemm, row-major: c = op(a) · op(b) + (add ? c : 0).
[[maybe_unused]] void gemm(const Factors<float>& f, bool add, float* c, int64_t ldc) {
  release_kept_space();
  cblas_sgemm(CblasRowMajor, cblas(f.transpose_a), cblas(f.transpose_b), static_cast<int>(f.m), static_cast<int>(f.n),
              static_cast<int>(f.k), 1, f.a, static_cast<int>(f.lda), f.b, static_cast<int>(f.ldb), add, c,
              static_cast<int>(ldc));
}
void gemm(const Factors<double>& f, bool add, double* c, int64_t ldc) {
  release_kept_space();
  cblas_dgemm(CblasRowMajor, cblas(f.transpose_a), cblas(f.transpose_b), static_cast<int>(f.m), static_cast<int>(f.n),
              static_cast<int>(f.k), 1, f.a, static_cast<int>(f.lda), f.b, static_cast<int>(f.ldb), add, c,
              static_cast<int>(ldc));
}

}  // namespace

template <typename T>
void multiply(const Factors<T>& factors, Result result, T* c, int64_t ldc, T* scratch) {
  if constexpr (kOwnProducts<T>) {
    packed_product(factors, result, c, ldc, nullptr, scratch);
  } else {
    gemm(factors, result == Result::add, c, ldc);
  }
}

template <typename T>
void multiply_then(const Factors<T>& factors, const Continuation<T>& continuation, T* scratch) {
  if constexpr (kOwnProducts<T>) {
    packed_product(factors, Result::set, nullptr, 0, &continuation, scratch);
  } else {
    gemm(factors, false, scratch, factors.n);
    continuation.then(0, factors.m, 0, factors.n, scratch, factors.n);
  }
}

template <typename T>
Packed<T> pack(Transpose transpose, int64_t depth, int64_t columns, const T* b, int64_t ldb, T* room) {
  if constexpr (kOwnProducts<T>) {
    return pack_factor(transpose, depth, columns, b, ldb, room);
  } else {
    return {transpose, depth, columns, b, ldb};
  }
}

template <typename T>
void multiply_packed(int64_t m, int64_t columns, int64_t depth, const T* a, int64_t lda, const Packed<T>& b,
                     Result result, T* c, int64_t ldc, T* scratch) {
  if constexpr (kOwnProducts<T>) {
    product_with_packed(m, columns, depth, a, lda, b, result, c, ldc, scratch);
  } else {
    gemm(Factors<T>{Transpose::no, b.transpose, m, columns, depth, a, lda, b.at, b.ld}, result == Result::add, c, ldc);
  }
}

template void multiply(const Factors<float>&, Result, float*, int64_t, float*);
template void multiply(const Factors<double>&, Result, double*, int64_t, double*);
template void multiply_then(const Factors<float>&, const Continuation<float>&, float*);
template void multiply_then(const Factors<double>&, const Continuation<double>&, double*);
template Packed<float> pack(Transpose, int64_t, int64_t, const float*, int64_t, float*);
template Packed<double> pack(Transpose, int64_t, int64_t, const double*, int64_t, double*);
template void multiply_packed(int64_t, int64_t, int64_t, const float*, int64_t, const Packed<float>&, Result, float*,
                              int64_t, float*);
template void multiply_packed(int64_t, int64_t, int64_t, const double*, int64_t, const Packed<double>&, Result, double*,
                              int64_t, double*);

void use_one_blas_thread() {
  // The reference BLAS has none of these functions, and uses one thread.
  if (openblas_set_num_threads) openblas_set_num_threads(1);
  if (MKL_Set_Num_Threads) MKL_Set_Num_Threads(1);
  if (bli_thread_set_num_threads) bli_thread_set_num_threads(1);
}

void keep_space_for_blas(int num_threads) {
  constexpr size_t kBufferBytes = size_t{128} << 20;  // of a thread, in OpenBLAS for x86-64
  rlimit limit{};
  if (kOwnProducts<float> || getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (kept_bytes > 0) return;
  const size_t bytes = kBufferBytes * static_cast<size_t>(num_threads);
  void* const space = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) {
    throw OutOfMemoryError(
        "",
        fmt::format("the address space is limited to {} MiB (ulimit -v), but matrix products need {} "
                    "MiB of it for {}",
                    limit.rlim_cur >> 20, bytes >> 20, counted(num_threads, "thread")),
        "Raise the limit, or use fewer " + option("threads"));
  }
  kept_bytes = bytes;
  kept_space = space;
}

}  // namespace tessera::cpu
