// Tests with a rank that misses a collective, calls a different collective than the other ranks, or passes an array of
// another size. The tests need at least two ranks.
#include "rank_test.h"
#include "tessera/comm/ranks/ranks_world.h"

namespace tessera {
namespace {

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
  auto group = make_group_with(test_world(), device_.get(), {.timeout_s = 1, .transport = test_transport()});
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
  static auto& kept = *new std::vector<std::pair<Communicator*, Device*>>;  // no leak: it stays reachable
  kept.emplace_back(group.release(), device_.release());
}

}  // namespace
}  // namespace tessera
