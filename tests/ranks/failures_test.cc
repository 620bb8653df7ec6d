// Ranks that do not come, or come to something else. Needs two ranks or more, and a short time limit.
#include <chrono>
#include <thread>

#include "rank_test.h"

namespace tessera {
namespace {

class Failures : public testing::Test {
 protected:
  // What the work on a stream throws.
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

TEST_F(Failures, SizesThatDifferAreTold) {
  ASSERT_GE(size_, 2);
  const int64_t num_elems = rank_ == 0 ? 999 : 1000;
  const std::string error = error_of(
      [&](Stream& stream) { group_->all_reduce(view_of(x_.data(), {num_elems}), stream, "gradients of h.3"); });
  EXPECT_TRUE(has(error, "rank " + std::to_string(rank_) + ": all_reduce of gradients of h.3")) << error;
  EXPECT_TRUE(has(error, "3996 bytes of f32") && has(error, "4000 bytes of f32")) << error;
}

TEST_F(Failures, CollectivesThatDifferAreTold) {
  const View x = view_of(x_.data(), {1000});
  const std::string error = error_of([&](Stream& stream) {
    if (rank_ == 0) return group_->all_reduce(x, stream, "gradients of h.3");
    group_->broadcast(x, 0, stream, "parameters of h.4");
  });
  EXPECT_TRUE(has(error, "all_reduce of gradients of h.3")) << error;
  EXPECT_TRUE(has(error, "broadcast of parameters of h.4")) << error;
}

TEST_F(Failures, SumsOfDifferentLengthsAreTold) {
  EXPECT_THROW(group_->sum(std::vector<double>(static_cast<size_t>(1 + rank_)), "losses"), CommunicationError);
}

TEST_F(Failures, ARankThatDoesNotComeIsNamedWithinTheTimeLimit) {
  const int late = size_ - 1;
  if (rank_ == late) std::this_thread::sleep_for(std::chrono::seconds(3));
  const auto begin = std::chrono::steady_clock::now();
  const std::string error = error_of([&](Stream& stream) {
    group_->reduce_scatter(view_of(x_.data(), {12 * size_}), view_of(x_.data() + 500, {12}), stream,
                           "gradients of h.3");
  });
  // The time limit is 1 s; far less than the late rank's sleep and some more.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
  EXPECT_TRUE(has(error, "rank " + std::to_string(rank_) + ": reduce_scatter of gradients of h.3")) << error;
  if (rank_ != late) {
    EXPECT_TRUE(has(error, "waited 1 s for rank " + std::to_string(late))) << error;
  }
  // Messages may still be on their way to a group whose collective has failed: it is never used again, nor taken apart.
  static_cast<void>(group_.release());
  static_cast<void>(device_.release());
}

}  // namespace
}  // namespace tessera
