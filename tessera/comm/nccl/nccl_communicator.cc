#include "tessera/comm/nccl/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "tessera/comm/nccl/nccl_windows.h"
#include "tessera/comm/time_limit.h"
#include "tessera/device/cuda/cuda_check.h"

namespace tessera {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return ncclFloat64;
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::f16_rest:
    case DType::bf16_rest:
      return ncclFloat16;  // rests have 16 bits. NCCL only copies them, so any 16-bit type works
    case DType::i64:
      return ncclInt64;
    case DType::i32:
      return ncclInt32;
    case DType::u8:
    case DType::nf4:  // count() is in bytes
    case DType::e4m3:
      return ncclUint8;
    case DType::q8_signed:
    case DType::q8_unsigned:
      TESSERA_ASSERT(!"ranks do not exchange quantized moments");
  }
  return ncclUint8;
}

// Added to the time limit of collectives to get the limit for NCCL's start. The start takes longer, because NCCL loads
// its kernels and finds connections.
constexpr double kNcclStartSlack_s = 30;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::unique_ptr<Communicator> host, int node, std::shared_ptr<NcclMemory> memory,
                   const WatchOptions& watch)
      : nccl_(nccl_library()), host_(std::move(host)), node_(node), memory_(std::move(memory)), watch_options_(watch) {}
  ~NcclCommunicator() override {
    if (!comm_) return;
    watch_.reset();
    const TimeLimit limit = limit_of("end", 0);
    // After a failure the other ranks may never finish the running collectives.
    std::uncaught_exceptions() > exceptions_ ? nccl_.comm_abort(comm_) : nccl_.comm_destroy(comm_);
    memory_->end_group();
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  Allocator* allocator() override { return nccl_.has_windows() ? &windows_ : nullptr; }

  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    TESSERA_ASSERT(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_all_gather(shard.bytes());
    put("all_gather", what, stream, [&](cudaStream_t native) {
      if (on_one_node_) {
        for (const View& array : {shard, full}) check(windows_.open(comm_, array.data), "all_gather", what);
      }
      return nccl_.all_gather(shard.data, full.data, count(shard), type_of(shard.dtype), comm_, native);
    });
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    TESSERA_ASSERT(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_reduce_scatter(shard.bytes());
    put("reduce_scatter", what, stream, [&](cudaStream_t native) {
      return nccl_.reduce_scatter(full.data, shard.data, count(shard), type_of(shard.dtype), ncclSum, comm_, native);
    });
  }
  void all_reduce(View x, Stream& stream, const char* what) override {
    count_all_reduce(x.bytes());
    put("all_reduce", what, stream, [&](cudaStream_t native) {
      return nccl_.all_reduce(x.data, x.data, count(x), type_of(x.dtype), ncclSum, comm_, native);
    });
  }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    count_broadcast(x.bytes(), root);
    put("broadcast", what, stream, [&](cudaStream_t native) {
      return nccl_.broadcast(x.data, x.data, count(x), type_of(x.dtype), root, comm_, native);
    });
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return host_->all_gather_text(text, what);
  }
  std::vector<double> sum(std::vector<double> values, const char* what) override {
    return host_->sum(std::move(values), what);
  }
  void barrier(const char* what) override { host_->barrier(what); }
  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    return make_nccl_communicator(host_->split(color, rank, size), node_, memory_, watch_options_);
  }
  std::unique_ptr<Communicator> duplicate_for_host() override { return host_->duplicate_for_host(); }

 private:
  void start() {
    ncclUniqueId id;
    if (rank() == 0) check(nccl_.get_unique_id(&id), "start", "the NCCL group");
    const auto texts = host_->all_gather_text({id.internal, rank() == 0 ? sizeof id.internal : 0}, "NCCL's group");
    std::memcpy(id.internal, texts[0].data(), sizeof id.internal);
    const auto nodes = host_->all_gather_text(std::to_string(node_), "the nodes of NCCL's group");
    on_one_node_ = std::ranges::count(nodes, nodes[0]) == size();
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
    // Among the GPUs of one node, copy engines are faster in a step, because they leave the multiprocessors alone. NCCL
    // advises against this policy where the ranks of several nodes should communicate as fast as possible.
    if (on_one_node_ && nccl_.has_windows()) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
    ncclComm_t comm = nullptr;
    {
      const TimeLimit limit = limit_of("start", kNcclStartSlack_s);
      check(nccl_.comm_init_rank(&comm, size(), id, rank(), &config), "start", "the NCCL group");
    }
    comm_ = comm;
    memory_->begin_group();
    if (cudaGetDevice(&device_) != cudaSuccess) cudaGetLastError();
    watch_ = std::make_unique<CollectiveWatch>(watch_options_, [this] { return asynchronous_error(); });
  }

  static size_t count(View view) {
    return static_cast<size_t>(is_packed(view.dtype) ? view.bytes() : view.num_elems());
  }
  template <typename Call>
  void put(const char* collective, const char* what, Stream& stream, const Call& call) {
    const auto native = static_cast<cudaStream_t>(stream.native());
    TESSERA_ASSERT(native);
    if (!comm_) start();
    watch_->begin(collective, what, stream);
    check(call(native), collective, what);
    watch_->called(stream);
  }
  CommunicationError failed(const char* collective, const char* what, const std::string& how) const {
    return {fmt::format("rank {}", watch_options_.rank), fmt::format("{} of {}: {}", collective, what, how),
            "Set NCCL_DEBUG=INFO to see details"};
  }
  void check(ncclResult_t result, const char* collective, const char* what) const {
    if (result == ncclSuccess) return;
    const std::string text = nccl_.text_of(result, comm_);
    if (text.find("out of memory") == text.npos) throw failed(collective, what, text);
    throw OutOfMemoryError(fmt::format("rank {}", watch_options_.rank),
                           fmt::format("{} of {}: {}", collective, what, text), cuda::kNoMemoryRemedy);
  }
  // Limits the time of NCCL's start and end. watch_ limits the time of collectives.
  TimeLimit limit_of(const char* call, double slack_s) const {
    const double limit_s = watch_options_.timeout_s + slack_s;
    return TimeLimit(limit_s, [this, call, limit_s] {
      watch_options_.fail(
          failed(call, "the NCCL group", fmt::format("waited {} s for the other ranks in NCCL", limit_s)));
    });
  }
  // Runs on the thread of watch_. The CUDA calls of this function must not create a context on another GPU, and must
  // not break the capture of a CUDA graph.
  std::string asynchronous_error() const {
    auto mode = cudaStreamCaptureModeRelaxed;
    if (cudaSetDevice(device_) != cudaSuccess || cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) {
      cudaGetLastError();  // clears the error. If the GPU has failed, the computing thread gets the error, too
    }
    ncclResult_t state = ncclSuccess;
    const ncclResult_t result = nccl_.comm_async_error(comm_, &state);
    if (result != ncclSuccess) return nccl_.text_of(result, comm_);
    return state == ncclSuccess || state == ncclInProgress ? "" : nccl_.text_of(state, comm_);
  }

  const NcclLibrary& nccl_;
  std::unique_ptr<Communicator> host_;
  const int node_;
  bool on_one_node_ = false;  // known after start()
  std::shared_ptr<NcclMemory> memory_;
  const WatchOptions watch_options_;
  const int exceptions_ = std::uncaught_exceptions();
  ncclComm_t comm_ = nullptr;
  NcclWindows windows_{nccl_};
  int device_ = 0;
  std::unique_ptr<CollectiveWatch> watch_;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, int node,
                                                     std::shared_ptr<NcclMemory> memory, const WatchOptions& watch) {
  if (host->size() == 1) return host;
  return std::make_unique<NcclCommunicator>(std::move(host), node, std::move(memory), watch);
}

std::string nccl_description() {
  try {
    int version = 0;
    nccl_library().version(&version);
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tessera
