#include "tessera/comm/mpi/mpi_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "tessera/base/counted.h"
#include "tessera/comm/mpi/direct_collectives.h"
#include "tessera/comm/mpi/message_collectives.h"
#include "tessera/comm/mpi/rendezvous_limit.h"

namespace tessera {
namespace {

bool all_agree(MPI_Comm comm, bool mine) {
  int result = mine;
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_LAND, comm);
  return result;
}

// Returns the id of the process that started all ranks of `comm`, directly or through other processes, or 0 if no such
// process is found. The ranks must be on one node, because process ids of different nodes cannot be compared.
pid_t find_launcher_of(MPI_Comm comm, int size) {
  constexpr int kLongest = 64;
  std::vector<pid_t> mine = ancestors();
  mine.resize(kLongest);
  std::vector<pid_t> all(static_cast<size_t>(size) * kLongest);
  MPI_Allgather(mine.data(), kLongest, MPI_INT, all.data(), kLongest, MPI_INT, comm);
  std::vector<std::vector<pid_t>> chains;
  for (auto begin = all.begin(); begin != all.end(); begin += kLongest) {
    chains.emplace_back(begin, std::find(begin, begin + kLongest, 0));
  }
  return nearest_common(chains);
}

// Returns two objects that communicate through memory pages shared by the ranks of `comm`. The first object is for
// streams, the second is for host calls. If any rank cannot open the pages, or cannot read the memory of the other
// ranks, all ranks get an empty list.
std::vector<std::unique_ptr<Collectives>> make_direct_collectives(MPI_Comm comm, const GroupInfo& group, View scratch) {
  char name[64] = {};
  const int64_t bytes_of_one = DirectCollectives::shared_bytes(group.size());
  std::optional<SharedPages> pages;
  if (group.rank == 0) {
    pages.emplace(SharedPages::create(2 * bytes_of_one));
    pages->name().copy(name, sizeof name - 1);
  }
  MPI_Bcast(name, sizeof name, MPI_CHAR, 0, comm);
  if (group.rank > 0) pages.emplace(SharedPages::open(name, 2 * bytes_of_one));
  const bool all_have_pages = all_agree(comm, static_cast<bool>(*pages));
  if (!all_have_pages) return {};

  const auto shared = std::make_shared<SharedPages>(std::move(*pages));
  const pid_t launcher = find_launcher_of(comm, group.size());
  auto streams = std::make_unique<DirectCollectives>(group, shared, 0, scratch, launcher);
  auto host = std::make_unique<DirectCollectives>(group, shared, bytes_of_one, View(), launcher);
  MPI_Barrier(comm);
  if (!all_agree(comm, streams->can_read_peers() && host->can_read_peers())) return {};
  std::vector<std::unique_ptr<Collectives>> both;
  both.push_back(std::move(streams));
  both.push_back(std::move(host));
  return both;
}

// Returns two objects that send messages. The first object is for streams, the second is for host calls.
std::vector<std::unique_ptr<Collectives>> make_message_collectives(MPI_Comm comm, const GroupInfo& group,
                                                                   View scratch) {
  std::vector<std::unique_ptr<Collectives>> both;
  for (const View its_scratch : {scratch, View()}) {
    MPI_Comm own = MPI_COMM_NULL;
    MPI_Comm_dup(comm, &own);
    both.push_back(std::make_unique<MessageCollectives>(group, own, its_scratch));
  }
  return both;
}

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MPI_Comm comm, Device* device, const WorldOptions& options, StatusBoard* board)
      : device_(device), options_(options), board_(board) {
    MPI_Comm_dup(comm, &comm_);
    GroupInfo group{.rank = 0, .world_ranks = {}, .timeout_s = options.timeout_s, .board = board};
    MPI_Comm_rank(comm_, &group.rank);
    int size = 0, world_rank = 0;
    MPI_Comm_size(comm_, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    group.world_ranks.resize(static_cast<size_t>(size));
    MPI_Allgather(&world_rank, 1, MPI_INT, group.world_ranks.data(), 1, MPI_INT, comm_);
    View scratch;
    if (device) {
      scratch_ = device->allocate(communication_scratch_bytes(size), Category::communication);
      scratch = scratch_.view({scratch_.bytes()}, DType::u8);
    }
    std::vector<std::unique_ptr<Collectives>> both;
    if (options.transport != Transport::messages) both = make_direct_collectives(comm_, group, scratch);
    if (both.empty() && options.transport == Transport::direct) {
      throw CommunicationError("", "the ranks cannot read each other's memory");
    }
    if (both.empty()) both = make_message_collectives(comm_, group, scratch);
    stream_collectives_ = std::move(both[0]);
    host_collectives_ = std::move(both[1]);
  }
  ~MpiCommunicator() override {
    stream_collectives_.reset();
    host_collectives_.reset();
    MPI_Comm_free(&comm_);
  }

  int rank() const override { return host_collectives_->group().rank; }
  int size() const override { return host_collectives_->group().size(); }

  void all_gather(View shard, View full, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_all_gather(shard.bytes());
    stream.run([this, shard, full, what] { stream_collectives_->all_gather(shard, full, what); });
  }
  void reduce_scatter(View full, View shard, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && shard.dtype == full.dtype && shard.num_elems() * size() == full.num_elems());
    count_reduce_scatter(shard.bytes());
    stream.run([this, shard, full, what] { stream_collectives_->reduce_scatter(full, shard, what); });
  }
  void all_reduce(View x, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_);
    count_all_reduce(x.bytes());
    stream.run([this, x, what] { stream_collectives_->all_reduce(x, what); });
  }
  void broadcast(View x, int root, Stream& stream, const char* what) override {
    TESSERA_ASSERT(device_ && root >= 0 && root < size());
    count_broadcast(x.bytes(), root);
    stream.run([this, x, root, what] { stream_collectives_->broadcast(x, root, what); });
  }

  std::vector<std::string> all_gather_text(std::string_view text, const char* what) override {
    return host_collectives_->exchange(text, what);
  }
  std::vector<double> sum(std::vector<double> values, const char* what) override {
    const size_t bytes = values.size() * sizeof(double);
    const auto texts = host_collectives_->exchange({reinterpret_cast<const char*>(values.data()), bytes}, what);
    for (size_t r = 0; r < texts.size(); ++r) {
      if (texts[r].size() != bytes) {
        throw CommunicationError(
            fmt::format("rank {}", host_collectives_->group().world_ranks[static_cast<size_t>(rank())]),
            fmt::format("sum of {}: this rank passes {}, but rank {} passes {}", what, counted(values.size(), "value"),
                        host_collectives_->group().world_ranks[r], texts[r].size() / sizeof(double)));
      }
    }
    std::vector<double> input(values.size());
    for (size_t r = 0; r < texts.size(); ++r) {
      if (bytes > 0) std::memcpy(input.data(), texts[r].data(), bytes);
      for (size_t i = 0; i < input.size(); ++i) values[i] = r == 0 ? input[i] : values[i] + input[i];
    }
    return values;
  }
  void barrier(const char* what) override { host_collectives_->exchange("", what); }

  std::unique_ptr<Communicator> split(int color, int rank, int size) override {
    barrier("groups to form");
    const GroupInfo& whole = host_collectives_->group();
    const RendezvousLimit limit("arrived", whole.world_ranks[static_cast<size_t>(whole.rank)], options_, board_);
    MPI_Comm part = MPI_COMM_NULL;
    MPI_Comm_split(comm_, color, rank, &part);
    auto group = make_mpi_communicator(part, device_, options_, board_);
    MPI_Comm_free(&part);
    TESSERA_ASSERT(group->rank() == rank && group->size() == size);
    return group;
  }

 private:
  Device* device_;
  WorldOptions options_;
  StatusBoard* board_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  Buffer scratch_;
  std::unique_ptr<Collectives> stream_collectives_, host_collectives_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, Device* device, const WorldOptions& options,
                                                    StatusBoard* board) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  if (size == 1) return make_self_communicator();
  return std::make_unique<MpiCommunicator>(comm, device, options, board);
}

}  // namespace tessera
