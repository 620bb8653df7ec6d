// Tests every collective on all types of kAllTypes. Sums must equal sequential sums in the order of ranks, bit for bit.
// With more than two GPUs, only sums that are exact in any order are tested, because NCCL adds in its own order.
#include <unistd.h>

#include <cstring>
#include <thread>

#include "rank_test.h"
#include "tessera/base/random.h"
#include "tessera/comm/ranks/memory_access.h"
#include "tessera/device/cuda/cuda_device.h"

namespace tessera {
namespace {

constexpr DType kAllTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8};
// Numbers of elements per shard: zero, few and many. Three of them are not multiples of the width of a SIMD vector.
// With kChunks elements per shard, CPU ranks compute sums of f32 in several chunks.
constexpr int64_t kSizes[] = {0, 1, 7, 1024, 4099};
constexpr int64_t kChunks = 600'007;

using Bytes = std::vector<std::byte>;

// The value that rank `rank` contributes at element i. If `simple`, the values are small integers, whose sums are exact
// in every type. Otherwise, floating-point sums of the values depend on the order of the additions.
double value_of(int rank, int64_t i, bool simple) {
  if (simple) return static_cast<double>((rank + 1) * (i % 5));
  const uint64_t bits = (static_cast<uint64_t>(i) * 8 + static_cast<uint64_t>(rank) + 1) * 0x9e3779b97f4a7c15u;
  const double unit = static_cast<double>((bits ^ (bits >> 29)) >> 11) * 0x1p-53;
  return (unit - 0.5) * static_cast<double>(1 << (i % 11));
}

template <typename T>
void put(Bytes& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T get(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void put_value(Bytes& bytes, int64_t i, DType dtype, double value) {
  switch (dtype) {
    case DType::f64:
      return put(bytes, i, value);
    case DType::f32:
      return put(bytes, i, static_cast<float>(value));
    case DType::f16:
      return put(bytes, i, f32_to_f16(static_cast<float>(value)));
    case DType::bf16:
      return put(bytes, i, f32_to_bf16(static_cast<float>(value)));
    case DType::f16_rest:
      return put(bytes, i, f16_rest_of(static_cast<float>(value)));
    case DType::bf16_rest:
      return put(bytes, i, bf16_rest_of(static_cast<float>(value)));
    case DType::i64:
      return put(bytes, i, static_cast<int64_t>(value * 1e9));
    case DType::i32:
      return put(bytes, i, static_cast<int32_t>(value * 1e4));
    case DType::u8:
      return put(bytes, i, static_cast<uint8_t>(static_cast<int>(value)));
    case DType::q8_signed:
    case DType::q8_unsigned:
    case DType::nf4:
    case DType::e4m3: {
      const size_t size = size_of(dtype);
      std::memset(bytes.data() + static_cast<size_t>(i) * size, static_cast<uint8_t>(static_cast<int>(value)), size);
    }
  }
}

Bytes contribution(int rank, int64_t num_elems, DType dtype, bool simple) {
  Bytes bytes(static_cast<size_t>(num_elems) * size_of(dtype));
  for (int64_t i = 0; i < num_elems; ++i) put_value(bytes, i, dtype, value_of(rank, i, simple));
  return bytes;
}

template <typename T>
void add(Bytes& sum, const Bytes& other, int64_t i) {
  put(sum, i, static_cast<T>(get<T>(sum, i) + get<T>(other, i)));
}

// The sum of the contributions of ranks 0 to size - 1, added in this order. For f16 and bf16, the additions are in f32,
// and the sum is rounded once at the end.
Bytes reference_sum(int size, int64_t num_elems, DType dtype, bool simple) {
  Bytes sum = contribution(0, num_elems, dtype, simple);
  const auto load = [&](const Bytes& bytes, int64_t i) {
    const auto bits = get<uint16_t>(bytes, i);
    return dtype == DType::f16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  };
  if (dtype == DType::f16 || dtype == DType::bf16) {
    std::vector<float> wide(static_cast<size_t>(num_elems));
    for (int rank = 0; rank < size; ++rank) {
      const Bytes other = contribution(rank, num_elems, dtype, simple);
      for (int64_t i = 0; i < num_elems; ++i) {
        float& x = wide[static_cast<size_t>(i)];
        x = rank == 0 ? load(other, i) : x + load(other, i);
      }
    }
    for (int64_t i = 0; i < num_elems; ++i) put_value(sum, i, dtype, wide[static_cast<size_t>(i)]);
    return sum;
  }
  for (int rank = 1; rank < size; ++rank) {
    const Bytes other = contribution(rank, num_elems, dtype, simple);
    for (int64_t i = 0; i < num_elems; ++i) {
      if (dtype == DType::f64) add<double>(sum, other, i);
      if (dtype == DType::f32) add<float>(sum, other, i);
      if (dtype == DType::i64) add<int64_t>(sum, other, i);
      if (dtype == DType::i32) add<int32_t>(sum, other, i);
      if (dtype == DType::u8) add<uint8_t>(sum, other, i);
    }
  }
  return sum;
}

// An array in the memory of the device.
class Array {
 public:
  Array(Device& device, const Bytes& bytes, DType dtype)
      : device_(device), buffer_(device.allocate(std::ssize(bytes), Category::workspace)), dtype_(dtype) {
    if (!bytes.empty()) device_.copy_from_host(bytes.data(), view());
  }
  template <typename T>
  Array(Device& device, const std::vector<T>& values)
      : Array(device,
              Bytes(reinterpret_cast<const std::byte*>(values.data()),
                    reinterpret_cast<const std::byte*>(values.data() + values.size())),
              dtype_of<T>()) {}

  View view() const { return buffer_.view({buffer_.bytes() / static_cast<int64_t>(size_of(dtype_))}, dtype_); }
  Bytes bytes() const {
    Bytes bytes(static_cast<size_t>(buffer_.bytes()));
    if (!bytes.empty()) device_.copy_to_host(view(), bytes.data());
    return bytes;
  }

 private:
  Device& device_;
  Buffer buffer_;
  DType dtype_;
};

class Collectives : public testing::Test {
 protected:
  ThreadPool pool_{1};
  std::unique_ptr<Device> device_ =
      test_uses_cuda() ? make_cuda_device(cuda_ordinal_of_rank(test_world().local_rank())) : make_cpu_device(pool_);
  std::unique_ptr<Communicator> group_ = test_world().make_communicator(*device_);
  std::unique_ptr<Stream> stream_ = device_->make_stream();
  const int size_ = group_->size(), rank_ = group_->rank();

  Array array(const Bytes& bytes, DType dtype) { return {*device_, bytes, dtype}; }
  template <typename Check>
  void for_all_arrays(const Check& check) {
    for (const DType dtype : kAllTypes) {
      for (const int64_t shard : kSizes) {
        for (const bool simple : {true, false}) {
          if (!simple && test_uses_cuda() && size_ > 2) continue;  // NCCL adds in its own order
          SCOPED_TRACE(testing::Message() << name_of(dtype) << " " << shard << (simple ? " simple" : ""));
          check(dtype, shard, simple);
        }
      }
    }
    const bool simple = test_uses_cuda() && size_ > 2;
    check(DType::f32, kChunks, simple);
    check(DType::bf16, kChunks, simple);
  }
  // Also arrays of groups in NF4, which are moved but not added.
  template <typename Check>
  void for_all_moved_arrays(const Check& check) {
    for_all_arrays(check);
    for (const int64_t shard : {1, 40}) check(DType::nf4, shard, true);
  }
};

TEST_F(Collectives, AllGatherFromAnotherArrayAndInPlace) {
  for_all_moved_arrays([&](DType dtype, int64_t shard, bool simple) {
    Bytes expected;
    for (int rank = 0; rank < size_; ++rank) {
      const Bytes part = contribution(rank, shard, dtype, simple);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const Bytes own = contribution(rank_, shard, dtype, simple);
    const Array mine = array(own, dtype), full = array(Bytes(expected.size()), dtype);
    group_->all_gather(mine.view(), full.view(), *stream_, "an array");
    stream_->synchronize();
    EXPECT_TRUE(full.bytes() == expected);

    Bytes with_own(expected.size());
    std::copy(own.begin(), own.end(), with_own.begin() + rank_ * std::ssize(own));
    const Array in_place = array(with_own, dtype);
    const View whole = in_place.view();
    group_->all_gather(whole.rows(rank_ * shard, (rank_ + 1) * shard), whole, *stream_, "an array");
    stream_->synchronize();
    EXPECT_TRUE(in_place.bytes() == expected);
  });
}

TEST_F(Collectives, ReduceScatterIntoAnotherArrayAndInPlace) {
  for_all_arrays([&](DType dtype, int64_t shard, bool simple) {
    const Bytes sum = reference_sum(size_, shard * size_, dtype, simple);
    const auto shard_bytes = static_cast<std::ptrdiff_t>(static_cast<size_t>(shard) * size_of(dtype));
    const Bytes expected(sum.begin() + rank_ * shard_bytes, sum.begin() + (rank_ + 1) * shard_bytes);
    const Array full = array(contribution(rank_, shard * size_, dtype, simple), dtype),
                mine = array(Bytes(expected.size()), dtype);
    group_->reduce_scatter(full.view(), mine.view(), *stream_, "an array");
    stream_->synchronize();
    EXPECT_TRUE(mine.bytes() == expected);

    const View whole = full.view();
    group_->reduce_scatter(whole, whole.rows(rank_ * shard, (rank_ + 1) * shard), *stream_, "an array");
    stream_->synchronize();
    const Bytes after = full.bytes();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), after.begin() + rank_ * shard_bytes));
  });
}

TEST_F(Collectives, AllReduceOfAnySizeGivesTheBitsOfReduceScatter) {
  for_all_arrays([&](DType dtype, int64_t shard, bool simple) {
    for (const int64_t num_elems : {shard * size_, shard * size_ + size_ / 2}) {
      const Array x = array(contribution(rank_, num_elems, dtype, simple), dtype);
      group_->all_reduce(x.view(), *stream_, "an array");
      stream_->synchronize();
      EXPECT_TRUE(x.bytes() == reference_sum(size_, num_elems, dtype, simple)) << num_elems;
    }
  });
}

TEST_F(Collectives, BroadcastFromEveryRoot) {
  for_all_moved_arrays([&](DType dtype, int64_t shard, bool simple) {
    for (int root = 0; root < size_; ++root) {
      const Array x = array(contribution(rank_, shard, dtype, simple), dtype);
      group_->broadcast(x.view(), root, *stream_, "an array");
      stream_->synchronize();
      EXPECT_TRUE(x.bytes() == contribution(root, shard, dtype, simple));
    }
  });
}

TEST_F(Collectives, TextsAndSumsOfTheHost) {
  const std::string text(static_cast<size_t>(rank_) * 1000, static_cast<char>('a' + rank_));
  const auto texts = group_->all_gather_text(text, "texts");
  ASSERT_EQ(texts.size(), static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    EXPECT_EQ(texts[static_cast<size_t>(rank)],
              std::string(static_cast<size_t>(rank) * 1000, static_cast<char>('a' + rank)));
  }
  double expected = value_of(0, 3, false);
  for (int rank = 1; rank < size_; ++rank) expected += value_of(rank, 3, false);
  EXPECT_EQ(group_->sum({value_of(rank_, 3, false), 1}, "numbers"), (std::vector<double>{expected, size_ + 0.0}));
  EXPECT_TRUE(group_->sum({}, "nothing").empty());
  group_->barrier("the end");
}

TEST_F(Collectives, HostCallsWhileAStreamWorks) {
  const Array x(*device_, std::vector<float>(20'000, static_cast<float>(rank_)));
  double expected = 0;
  for (int rank = 0; rank < size_; ++rank) expected += rank;
  for (int i = 0; i < 50; ++i) {
    group_->broadcast(x.view(), 0, *stream_, "an array");
    EXPECT_EQ(group_->sum({static_cast<double>(rank_)}, "numbers")[0], expected);
  }
  group_->all_reduce(x.view(), *stream_, "an array");
  stream_->synchronize();
  EXPECT_EQ(get<float>(x.bytes(), 19'999), 0);
}

TEST_F(Collectives, GroupsOfAGridDoNotMixTheirNumbers) {
  // A row of the grid has at most two ranks. 4 ranks are a grid of 2 × 2. With 3 ranks, the second row has one rank.
  const auto row = group_->split(rank_ / 2, rank_ % 2, std::min(2, size_ - rank_ / 2 * 2));
  const auto column = group_->split(rank_ % 2, rank_ / 2, (size_ - rank_ % 2 + 1) / 2);
  const std::vector<float> own = {static_cast<float>(1 << rank_)};
  float sum_of_row = 0, sum_of_column = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const Array x(*device_, own), y(*device_, own);
    row->all_reduce(x.view(), *stream_, "a row");
    column->all_reduce(y.view(), *stream_, "a column");
    stream_->synchronize();
    sum_of_row = get<float>(x.bytes(), 0);
    sum_of_column = get<float>(y.bytes(), 0);
  }
  float of_row = 0, of_column = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank / 2 == rank_ / 2) of_row += static_cast<float>(1 << rank);
    if (rank % 2 == rank_ % 2) of_column += static_cast<float>(1 << rank);
  }
  EXPECT_EQ(sum_of_row, of_row);
  EXPECT_EQ(sum_of_column, of_column);
}

TEST_F(Collectives, SendTheBytesThatACountingGroupCounts) {
  const auto counting_device = make_counting_device({device_->kind(), 1});
  const auto counting = make_counting_communicator(*counting_device, rank_, size_);
  const Array full = array(Bytes(static_cast<size_t>(size_) * 40), DType::f32), shard = array(Bytes(40), DType::f32);
  const auto full_as = [&](DType dtype) {
    return View{full.view().data, dtype, {full.view().bytes() / static_cast<int64_t>(size_of(dtype))}};
  };
  for (Communicator* group : {group_.get(), counting.get()}) {
    Stream& stream = group == counting.get() ? counting_device->compute_stream() : *stream_;
    group->all_gather(shard.view(), full.view(), stream, "an array");
    group->reduce_scatter(full.view(), shard.view(), stream, "an array");
    group->all_reduce(full_as(DType::bf16), stream, "an array");
    group->broadcast(full_as(DType::u8), size_ - 1, stream, "an array");
  }
  stream_->synchronize();
  EXPECT_EQ(group_->bytes_sent(), counting->bytes_sent());
  EXPECT_EQ(group_->bytes_sent() > 0, size_ > 1);
  EXPECT_EQ(device_->ledger().current(Category::communication),
            counting_device->ledger().current(Category::communication));
}

TEST_F(Collectives, ArraysWithMoreElementsThanAnIntCanCount) {
  if (size_ != 2) {  // each rank needs 2 GiB, so the test runs only with two ranks
    EXPECT_NE(size_, 2);
    return;
  }
  const int64_t num_elems = (int64_t{1} << 31) + 5;
  const Buffer buffer = device_->allocate(num_elems, Category::workspace);
  const View x = buffer.view({num_elems}, DType::u8);
  Bytes piece(int64_t{1} << 26, static_cast<std::byte>(1 + rank_));
  const auto for_pieces = [&](const auto& body) {
    for (int64_t i = 0; i < num_elems; i += std::ssize(piece)) {
      body(i, x.rows(i, std::min(num_elems, i + std::ssize(piece))));
    }
  };
  for_pieces([&](int64_t, View part) { device_->copy_from_host(piece.data(), part); });
  if (test_transport() == Transport::messages) {
    group_->broadcast(x, 1, *stream_, "a long array");
  } else {
    group_->all_reduce(x, *stream_, "a long array");
  }
  stream_->synchronize();
  const uint8_t expected = test_transport() == Transport::messages ? 2 : 3;
  for_pieces([&](int64_t first, View part) {
    device_->copy_to_host(part, piece.data());
    for (int64_t i = 0; i < part.num_elems(); i += 4093) ASSERT_EQ(get<uint8_t>(piece, i), expected) << first + i;
    EXPECT_EQ(get<uint8_t>(piece, part.num_elems() - 1), expected);
  });
}

TEST(World, AllRanksOfOneMachineAreOneNode) {
  const World& world = test_world();
  EXPECT_EQ(world.nodes(), std::vector<int>(static_cast<size_t>(world.size()), 0));
  EXPECT_EQ(world.ranks_per_node(), world.size());
  EXPECT_EQ(world.local_rank(), world.rank());
}

TEST(World, NamesTheRankWithAnotherSetting) {
  World& world = test_world();
  check_agreement(world.communicator(), {{"version", "1"}, {"lr", "0.1"}});
  const bool last = world.rank() == world.size() - 1 && world.size() > 1;
  try {
    check_agreement(world.communicator(), {{"version", "1"}, {"lr", last ? "0.2" : "0.1"}, {"seed", "1"}});
    EXPECT_EQ(world.size(), 1);
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("lr"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("0.2 on rank " + std::to_string(world.size() - 1)), std::string::npos)
        << error.what();
  }
}

TEST(Memory, IsReadOnlyByDescendantsOfTheLauncher) {
  const bool is_read = test_world().size() > 1 && test_transport() != Transport::messages;
  EXPECT_EQ(MemoryAccess::named(), is_read ? getppid() : 0);
}

}  // namespace
}  // namespace tessera
