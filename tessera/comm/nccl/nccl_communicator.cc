#include "tessera/comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <cstring>

#include "tessera/comm/nccl/nccl_library.h"

namespace tessera {
namespace {

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  return ncclUint8;
}

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::unique_ptr<Communicator> host) : nccl_(nccl_library()), host_(std::move(host)) {
    ncclUniqueId id;
    std::string text;
    if (rank() == 0) {
      check(nccl_.get_unique_id(&id), "start", "the group");
      text.assign(id.internal, sizeof id.internal);
    }
    const auto texts = host_->all_gather_text(text, "NCCL's group");
    std::memcpy(id.internal, texts[0].data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    check(nccl_.comm_init_rank(&comm_, size(), id, rank(), &config), "start", "the group");
  }
  ~NcclCommunicator() override {
    if (comm_) nccl_.comm_destroy(comm_);
  }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    TESSERA_ASSERT(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_all_gather(shard.bytes());
    check(nccl_.all_gather(shard.data, full.data, count(shard), type_of(shard.dtype), comm_, native(stream)),
          "all_gather", what);
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    TESSERA_ASSERT(shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_reduce_scatter(shard.bytes());
    check(nccl_.reduce_scatter(full.data, shard.data, count(shard), type_of(shard.dtype), ncclSum, comm_,
                               native(stream)),
          "reduce_scatter", what);
  }
  void all_reduce(View x, Stream& stream, const char* what) override {
    count_all_reduce(x.bytes());
    check(nccl_.all_reduce(x.data, x.data, count(x), type_of(x.dtype), ncclSum, comm_, native(stream)), "all_reduce",
          what);
  }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    count_broadcast(x.bytes(), root);
    check(nccl_.broadcast(x.data, x.data, count(x), type_of(x.dtype), root, comm_, native(stream)), "broadcast", what);
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return host_->all_gather_text(text, what);
  }
  std::vector<double> sum(std::vector<double> values, const char* what) override {
    return host_->sum(std::move(values), what);
  }
  void barrier(const char* what) override { host_->barrier(what); }
  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    return make_nccl_communicator(host_->split(color, rank, size));
  }

 private:
  static size_t count(View view) { return static_cast<size_t>(view.num_elems()); }
  static cudaStream_t native(Stream& stream) {
    TESSERA_ASSERT(stream.native());
    return static_cast<cudaStream_t>(stream.native());
  }
  void check(ncclResult_t result, const char* collective, const char* what) const {
    if (result == ncclSuccess) return;
    throw CommunicationError(fmt::format("rank {}", rank()),
                             fmt::format("{} of {} failed in NCCL: {}", collective, what, nccl_.error_string(result)),
                             "NCCL_DEBUG=INFO tells more");
  }

  const NcclLibrary& nccl_;
  std::unique_ptr<Communicator> host_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host) {
  if (host->size() == 1) return host;
  return std::make_unique<NcclCommunicator>(std::move(host));
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
