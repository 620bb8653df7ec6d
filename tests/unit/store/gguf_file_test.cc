#include "tessera/store/gguf_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "store_test_util.h"
#include "tessera/base/error.h"
#include "tessera/base/read_file.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Reads the values of a file one after the other.
class Bytes {
 public:
  explicit Bytes(std::string data) : data_(std::move(data)) {}
  template <typename T>
  T next() {
    T value;
    std::memcpy(&value, data_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = next<uint64_t>();
    at_ += size;
    return data_.substr(at_ - size, size);
  }
  void align() { at_ = (at_ + 31) / 32 * 32; }
  size_t at() const { return at_; }
  size_t size() const { return data_.size(); }

 private:
  std::string data_;
  size_t at_ = 0;
};

TEST(GgufFile, HasKeysAndAlignedTensors) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "new" / "a.gguf";
  ThreadPool pool(2);
  std::vector<float> matrix(6), vector{7, 8, 9};
  std::iota(matrix.begin(), matrix.end(), 0.0f);
  {
    GgufFile file(path, {{"a", uint32_t{3}}, {"b", std::vector<std::string>{"x", "yz"}}, {"c", true}, {"d", 0.5f}},
                  {{"v", {3}, GgufType::f32}, {"m", {6, 1}, GgufType::bf16}});
    file.write("v", view_of(vector.data(), {3}), {}, pool);
    // Rows [1, first 2, second 3] become [second 3, first 2].
    file.write("m", view_of(matrix.data(), {6, 1}), {2, 3, 1}, pool);
    EXPECT_FALSE(fs::exists(path));
    file.commit();
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
  Bytes bytes(read_file(path, {}));
  EXPECT_EQ(bytes.next<uint32_t>(), 0x46554747u);
  EXPECT_EQ(bytes.next<uint32_t>(), 3u);
  EXPECT_EQ(bytes.next<uint64_t>(), 2u);
  EXPECT_EQ(bytes.next<uint64_t>(), 4u);
  EXPECT_EQ(bytes.text(), "a");
  EXPECT_EQ(bytes.next<uint32_t>(), 4u);
  EXPECT_EQ(bytes.next<uint32_t>(), 3u);
  EXPECT_EQ(bytes.text(), "b");
  EXPECT_EQ(bytes.next<uint32_t>(), 9u);
  EXPECT_EQ(bytes.next<uint32_t>(), 8u);
  EXPECT_EQ(bytes.next<uint64_t>(), 2u);
  EXPECT_EQ(bytes.text(), "x");
  EXPECT_EQ(bytes.text(), "yz");
  EXPECT_EQ(bytes.text(), "c");
  EXPECT_EQ(bytes.next<uint32_t>(), 7u);
  EXPECT_EQ(bytes.next<uint8_t>(), 1u);
  EXPECT_EQ(bytes.text(), "d");
  EXPECT_EQ(bytes.next<uint32_t>(), 6u);
  EXPECT_EQ(bytes.next<float>(), 0.5f);
  EXPECT_EQ(bytes.text(), "v");
  EXPECT_EQ(bytes.next<uint32_t>(), 1u);
  EXPECT_EQ(bytes.next<uint64_t>(), 3u);
  EXPECT_EQ(bytes.next<uint32_t>(), 0u);
  EXPECT_EQ(bytes.next<uint64_t>(), 0u);
  EXPECT_EQ(bytes.text(), "m");
  EXPECT_EQ(bytes.next<uint32_t>(), 2u);
  EXPECT_EQ(bytes.next<uint64_t>(), 1u);  // the last dimension comes first
  EXPECT_EQ(bytes.next<uint64_t>(), 6u);
  EXPECT_EQ(bytes.next<uint32_t>(), 30u);
  EXPECT_EQ(bytes.next<uint64_t>(), 32u);
  bytes.align();
  for (const float x : vector) EXPECT_EQ(bytes.next<float>(), x);
  bytes.align();
  for (const float x : {0.0f, 3.0f, 1.0f, 4.0f, 2.0f, 5.0f}) EXPECT_EQ(bf16_to_f32(bytes.next<uint16_t>()), x);
  bytes.align();
  EXPECT_EQ(bytes.at(), bytes.size());
}

TEST(GgufFile, BlocksOfEightBits) {
  std::vector<float> values(2 * kQ8Values, 0.0f);
  values[0] = -127, values[1] = 2.5f, values[2] = -2.5f, values[3] = 2.4999f;  // the scale is 1
  std::vector<std::byte> bytes(static_cast<size_t>(gguf_row_bytes(GgufType::q8_0, std::ssize(values))));
  to_gguf(values.data(), std::ssize(values), GgufType::q8_0, bytes.data());
  ASSERT_EQ(bytes.size(), 68u);
  uint16_t scale;
  std::memcpy(&scale, bytes.data(), 2);
  EXPECT_EQ(f16_to_f32(scale), 1.0f);
  const int expected[] = {-127, 3, -3, 2, 0};  // ties go away from zero
  for (size_t i = 0; i < std::size(expected); ++i) EXPECT_EQ(static_cast<int8_t>(bytes[2 + i]), expected[i]) << i;
  for (size_t i = 34; i < 68; ++i) EXPECT_EQ(bytes[i], std::byte{0});  // a block of zeros has the scale 0
}

TEST(GgufFile, ValuesThatDoNotFitLeaveNoFile) {
  const TemporaryFolder folder;
  ThreadPool pool(1);
  std::vector<float> values(kQ8Values, 1e9f);
  for (const GgufType type : {GgufType::f16, GgufType::q8_0}) {
    const auto write = [&] {
      GgufFile file(folder.path() / "a.gguf", {}, {{"m", {1, kQ8Values}, type}});
      file.write("m", view_of(values.data(), {1, kQ8Values}), {}, pool);
    };
    EXPECT_THROW(write(), RunError);
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
}

}  // namespace
}  // namespace tessera
