// cuBLASLt expects column-major arrays. To cuBLASLt, a row-major array [r, c] is its transpose, the array [c, r]. Let a
// product be result = L · R, where L is `left` or its transpose, and R is `right` or its transpose. cuBLASLt then
// computes resultᵀ = Rᵀ · Lᵀ: cuBLASLt's A is the right factor, and its B is the left factor. A bias is added to each
// row of the result. To cuBLASLt, each of these rows is a column.
#include "tessera/ops/cuda/products.h"

#include <algorithm>

#include "tessera/ops/cuda/arrays.h"

namespace tessera::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return CUDA_R_64F;
    case DType::f32:
      return CUDA_R_32F;
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::e4m3:
      return CUDA_R_8F_E4M3;
    default:
      TESSERA_ASSERT(!"the type is not a floating-point type");
  }
}

cublasLtEpilogue_t epilogue_of(Fused fused) {
  switch (fused) {
    case Fused::nothing:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Fused::bias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Fused::gelu:
      return CUBLASLT_EPILOGUE_GELU_BIAS;
    case Fused::gelu_keep:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

class Layout {
 public:
  // The layout of a row-major array.
  Layout(DType dtype, int64_t rows, int64_t columns) {
    check(cublas_lt().layout_create(&layout_, type_of(dtype), static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), columns),
          "cublasLtMatrixLayoutCreate");
  }
  explicit Layout(View view) : Layout(view.dtype, view.shape[0], view.shape[1]) {}
  ~Layout() { cublas_lt().layout_destroy(layout_); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  operator cublasLtMatrixLayout_t() const { return layout_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
};

class Description {
 public:
  Description(cublasComputeType_t compute, cudaDataType_t scale) {
    check(cublas_lt().desc_create(&description_, compute, scale), "cublasLtMatmulDescCreate");
  }
  ~Description() { cublas_lt().desc_destroy(description_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;
  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublas_lt().desc_set(description_, attribute, &value, sizeof(value)), "cublasLtMatmulDescSetAttribute");
  }
  operator cublasLtMatmulDesc_t() const { return description_; }

 private:
  cublasLtMatmulDesc_t description_ = nullptr;
};

// The largest power of two up to a limit that divides the addresses of all views. cuBLASLt's algorithms may depend on
// it. 8-bit weights have 16 at least, and more or less depending on how they were gathered, which must change no bit.
int alignment_of(const Product& p) {
  uintptr_t bits = p.left_scales ? 16 : 256;
  for (const View& view : {p.left, p.right, p.result, p.added, p.bias, p.aux, p.left_scales, p.right_scales}) {
    bits |= reinterpret_cast<uintptr_t>(view.data);
  }
  return static_cast<int>(bits & (~bits + 1));
}

void set_scales(Description& description, const Product& p) {
  description.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.right_scales.data);
  description.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.left_scales.data);
}

bool transposes_left(ProductKind kind) {
  return kind == ProductKind::backward_weight;
}
bool transposes_right(ProductKind kind) {
  return kind == ProductKind::forward;
}

}  // namespace

// The description of a product for cuBLASLt, and the chosen algorithm.
struct Products::Plan {
  Plan(const Product& p, cublasComputeType_t compute, cudaDataType_t scale)
      : description(compute, scale), right(p.right), left(p.left), result(p.result) {}

  Description description;
  Layout right, left, result;
  cublasLtMatmulAlgo_t algorithm{};
  bool tuned = false;  // whether tune() has been called
};

Products::Products(const Context& context, std::byte* workspace, bool allow_tf32)
    : context_(context), workspace_(workspace), allow_tf32_(allow_tf32) {
  check(cublas_lt().create(&handle_), "cublasLtCreate");
}

Products::~Products() {
  plans_.clear();
  cublas_lt().destroy(handle_);
}

Products::Plan* Products::plan_of(const Product& p) {
  const Key key{static_cast<int>(p.kind), static_cast<int>(p.fused), p.left.dtype,      p.result.dtype, p.bias.dtype,
                p.left.shape[0],          p.left.shape[1],           p.result.shape[1], alignment_of(p)};
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second.get();
  return plans_.emplace(key, make_plan(p)).first->second.get();
}

std::unique_ptr<Products::Plan> Products::make_plan(const Product& p) const {
  const bool in_double = p.left.dtype == DType::f64;
  const cublasComputeType_t compute = in_double                                   ? CUBLAS_COMPUTE_64F
                                      : allow_tf32_ && p.left.dtype == DType::f32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                                  : CUBLAS_COMPUTE_32F;
  auto plan = std::make_unique<Plan>(p, compute, in_double ? CUDA_R_64F : CUDA_R_32F);
  Description& description = plan->description;
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  description.set(CUBLASLT_MATMUL_DESC_TRANSA, operation(transposes_right(p.kind)));
  description.set(CUBLASLT_MATMUL_DESC_TRANSB, operation(transposes_left(p.kind)));
  description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(p.fused));
  if (p.left_scales) {
    TESSERA_ASSERT(p.kind == ProductKind::forward && p.right_scales);
    TESSERA_ASSERT(p.left.shape[0] % 4 == 0);
#if CUBLAS_VERSION >= 120900  // otherwise CudaKernels::refusal_of_float8() has a reason
    description.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F});
    description.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, int32_t{CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F});
#endif
    set_scales(description, p);
  }
  if (p.bias) {
    description.set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(p.bias.dtype)));
    description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
  }
  if (p.aux) {
    description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.aux.shape[1]);
    description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.data);
    if (p.aux.shape[1] % 8 != 0) return nullptr;
  }

  const auto found = candidates(p, *plan, 1);
  if (found.empty()) return nullptr;
  plan->algorithm = found[0].algo;
  return plan;
}

// Returns at most `count` algorithms. cuBLASLt's own choice comes first.
std::vector<cublasLtMatmulHeuristicResult_t> Products::candidates(const Product& p, const Plan& plan, int count) const {
  const CublasLt& lt = cublas_lt();
  cublasLtMatmulPreference_t preference = nullptr;
  check(lt.preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    lt.preference_set(preference, attribute, &value, sizeof(value));
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kProductWorkspaceBytes));
  const auto alignment = static_cast<uint32_t>(alignment_of(p));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, alignment);
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int num_found = 0;
  const cublasStatus_t status = lt.get_heuristic(handle_, plan.description, plan.right, plan.left, plan.result,
                                                 plan.result, preference, count, found.data(), &num_found);
  lt.preference_destroy(preference);
  found.resize(status == CUBLAS_STATUS_SUCCESS ? static_cast<size_t>(num_found) : 0);
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return found;
}

// Returns the time of one run in milliseconds: the lower of two measurements. A measurement is the mean of kCalls runs
// in a row, so that the GPU does not wait for the host between the runs. If a single run takes longer than kLongMs, a
// measurement is one run.
float Products::time_ms(const Product& p, Plan& plan) {
  constexpr int kCalls = 8;
  struct TimedEvent {
    TimedEvent() { check(cudaEventCreate(&event), "cudaEventCreate"); }
    ~TimedEvent() { cudaEventDestroy(event); }
    cudaEvent_t event = nullptr;
  };
  const TimedEvent begin, end;
  const auto time = [&](int calls) {
    float ms = 0;
    check(cudaEventRecord(begin.event, context_.stream), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) launch(p, plan);
    check(cudaEventRecord(end.event, context_.stream), "cudaEventRecord");
    check(cudaEventSynchronize(end.event), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    return ms / static_cast<float>(calls);
  };
  constexpr float kLongMs = 0.3f;  // the host launches a run in much less time than this
  const float once = time(1);
  if (once > kLongMs) return std::min(once, time(1));
  return std::min(time(kCalls), time(kCalls));
}

bool Products::is_to_be_tuned(const Product& p, const Plan& plan) const {
  if (!tuning_ || plan.tuned || p.added.data == p.result.data || num_measured_ == kMaxMeasured) return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(context_.stream, &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusNone;
}

// Whether the bits of the result show in which order an algorithm adds. Another order of additions in f32 changes the
// last bits of a sum. Only about one 16-bit result in 10,000 shows the difference, so the result must have many
// elements. Zeros (such as gradients of rows without loss) and infinities give the same sum in any order. Therefore at
// least a quarter of the elements of each factor must be finite and not zero.
bool Products::bits_show_order(const Product& p) const {
  constexpr int64_t kManyResults = int64_t{1} << 18;
  if (p.result.num_elems() < kManyResults) return false;
  for (const View& factor : {p.left, p.right}) {
    if (count_finite_nonzero(context_, factor, device_sum()) < factor.num_elems() / 4) return false;
  }
  return true;
}

void Products::tune(const Product& p, Plan& plan) {
  constexpr int kCandidates = 8;
  plan.tuned = true;
  ++num_measured_;
  if (!bits_show_order(p)) return;
  launch(p, plan);
  const uint64_t wanted = hash_of(context_, p.result, device_sum());
  cublasLtMatmulAlgo_t fastest = plan.algorithm;
  float least = time_ms(p, plan);
  for (const auto& candidate : candidates(p, plan, kCandidates)) {
    plan.algorithm = candidate.algo;
    try {
      launch(p, plan);
      if (hash_of(context_, p.result, device_sum()) != wanted) continue;
      const float ms = time_ms(p, plan);
      if (ms >= least) continue;
      least = ms;
      fastest = candidate.algo;
    } catch (const Error&) {
      // cuBLASLt offered this algorithm but cannot run it. If the GPU itself failed, later calls will throw again.
    }
  }
  plan.algorithm = fastest;
}

void Products::run(const Product& p) {
  Plan* const plan = plan_of(p);
  if (!plan) check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic");
  if (is_to_be_tuned(p, *plan)) tune(p, *plan);
  launch(p, *plan);
}

void Products::launch(const Product& p, Plan& plan) {
  if (p.left_scales) set_scales(plan.description, p);
  if (p.bias) plan.description.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias.data);
  if (p.aux) plan.description.set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p.aux.data);
  const float ones[2] = {1, p.added ? 1.0f : 0.0f};
  const double double_ones[2] = {1, p.added ? 1.0 : 0.0};
  const bool in_double = p.left.dtype == DType::f64;
  const void* alpha = in_double ? static_cast<const void*>(double_ones) : ones;
  const void* beta = in_double ? static_cast<const void*>(double_ones + 1) : ones + 1;
  const std::byte* added = p.added ? p.added.data : p.result.data;
  check(cublas_lt().matmul(handle_, plan.description, alpha, p.right.data, plan.right, p.left.data, plan.left, beta,
                           added, plan.result, p.result.data, plan.result, &plan.algorithm, workspace_,
                           static_cast<size_t>(kProductWorkspaceBytes), context_.stream),
        "cublasLtMatmul");
}

}  // namespace tessera::cuda
