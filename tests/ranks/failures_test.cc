// Tests with a rank that misses a collective, calls a different collective than the other ranks, or passes an array of
// another size. The tests need at least two ranks.
#include "rank_test.h"
#include "tessera/comm/mpi/message_collectives.h"
#include "tessera/comm/mpi/mpi_communicator.h"

namespace tessera {
namespace {

// A message may arrive after its collective has failed. The caller may have freed the array of the collective by then,
// so the message must not be written to this array. In this test, rank 1 sends the messages of a broadcast without
// MessageCollectives. It sends the data after the broadcast of rank 0 has timed out.
TEST(FailedLane, LeavesMemoryAlone) {
  MPI_Comm messages = MPI_COMM_NULL, host = MPI_COMM_NULL;
  const int rank = test_world().rank(), color = rank < 2 ? 0 : MPI_UNDEFINED;
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &messages);
  MPI_Comm_split(MPI_COMM_WORLD, color, rank, &host);
  std::vector<float> x(16, 7);
  const View view = view_of(x.data(), {16});
  if (rank == 0) {
    MessageCollectives collectives({.rank = 0, .world_ranks = {0, 1}, .timeout_s = 0.01}, messages, View());
    MPI_Barrier(host);  // rank 1 has announced the broadcast
    EXPECT_THROW(collectives.broadcast(view, 1, "parameters of h.4"), CommunicationError);
    MPI_Barrier(host);  // now rank 1 sends its data
    MPI_Barrier(host);
    int is_there = 0;
    while (!is_there && x[0] == 7) MPI_Iprobe(1, 0, messages, &is_there, MPI_STATUS_IGNORE);
    EXPECT_EQ(x, std::vector<float>(16, 7));
    if (is_there) MPI_Recv(x.data(), 16, MPI_FLOAT, 1, 0, messages, MPI_STATUS_IGNORE);
    EXPECT_EQ(x, std::vector<float>(16, 8));
  } else if (rank == 1) {
    Call call = Call::make(Collective::broadcast, view.dtype, view.bytes(), "parameters of h.4", 1);
    MPI_Send(&call, sizeof call, MPI_BYTE, 0, 0, messages);
    MPI_Barrier(host);
    MPI_Recv(&call, sizeof call, MPI_BYTE, 0, 0, messages, MPI_STATUS_IGNORE);
    MPI_Barrier(host);
    x.assign(16, 8);
    MPI_Send(x.data(), 16, MPI_FLOAT, 0, 0, messages);
    MPI_Barrier(host);
    MPI_Comm_free(&messages);
  }
  if (rank < 2) MPI_Comm_free(&host);
}

class Failures : public testing::Test {
 protected:
  // The text of the CommunicationError that `work` on a new stream throws; "" if it throws none.
  template <typename Work>
  std::string error_of(const Work& work) {
    const auto stream = device_->make_stream();
    try {
      work(*stream);
      stream->synchronize();
    } catch (const CommunicationError& error) {
      return error.what();
    }
    return "";
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ = make_cpu_device(pool_);
  std::unique_ptr<Communicator> group_ = test_world().make_communicator(*device_);
  const int size_ = group_->size(), rank_ = group_->rank();
  std::vector<float> x_ = std::vector<float>(1000);
};

TEST_F(Failures, SizesThatDifferAreReported) {
  ASSERT_GE(size_, 2);
  const int64_t num_elems = rank_ == 0 ? 999 : 1000;
  const std::string error = error_of(
      [&](Stream& stream) { group_->all_reduce(view_of(x_.data(), {num_elems}), stream, "gradients of h.3"); });
  EXPECT_TRUE(has(error, "rank " + std::to_string(rank_) + ": all_reduce of gradients of h.3")) << error;
  EXPECT_TRUE(has(error, "3996 bytes of f32") && has(error, "4000 bytes of f32")) << error;
}

TEST_F(Failures, CollectivesThatDifferAreReported) {
  const View x = view_of(x_.data(), {1000});
  const std::string error = error_of([&](Stream& stream) {
    if (rank_ == 0) return group_->all_reduce(x, stream, "gradients of h.3");
    group_->broadcast(x, 0, stream, "parameters of h.4");
  });
  EXPECT_TRUE(has(error, "all_reduce of gradients of h.3")) << error;
  EXPECT_TRUE(has(error, "broadcast of parameters of h.4")) << error;
}

TEST_F(Failures, SumsOfDifferentLengthsAreReported) {
  EXPECT_THROW(group_->sum(std::vector<double>(static_cast<size_t>(1 + rank_)), "losses"), CommunicationError);
}

TEST_F(Failures, AMissingRankIsNamed) {
  auto group =
      make_mpi_communicator(MPI_COMM_WORLD, device_.get(), {.timeout_s = 1, .transport = test_transport()}, nullptr);
  const int late = size_ - 1;
  const auto others_have_failed = [] { test_world().communicator().barrier("failures"); };
  if (rank_ == late) others_have_failed();
  const std::string error = error_of([&](Stream& stream) {
    group->reduce_scatter(view_of(x_.data(), {12 * size_}), view_of(x_.data() + 500, {12}), stream, "gradients of h.3");
  });
  EXPECT_TRUE(has(error, "rank " + std::to_string(rank_) + ": reduce_scatter of gradients of h.3")) << error;
  if (rank_ != late) {
    // The error lists all late ranks. On a busy machine, several ranks may be late.
    const size_t names = error.find("waited 1 s for rank");
    ASSERT_NE(names, std::string::npos) << error;
    EXPECT_TRUE(has(error.substr(error.find("for rank", names)), std::to_string(late))) << error;
    others_have_failed();
  }
  // Messages may still arrive for a group whose collective has failed. Therefore the group is neither used again nor
  // destroyed.
  static std::vector<std::pair<Communicator*, Device*>> kept;
  kept.emplace_back(group.release(), device_.release());
}

}  // namespace
}  // namespace tessera
