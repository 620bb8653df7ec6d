// Tests the writing and reading of tensors, with conversions between types, damaged files and full disks.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "store_test_util.h"
#include "tessera/base/random.h"
#include "tessera/store/safetensors.h"

namespace tessera {
namespace {

using testing::HasSubstr;

std::vector<float> random_floats(size_t count) {
  RandomStream random(7, count);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(4 * random.next_uniform() - 2);
  return values;
}

TEST(SafetensorsFile, ReadsBackWhatWasWrittenInAnyOrder) {
  TemporaryFolder folder;
  auto floats = random_floats(6);
  std::vector<int64_t> longs{-1, 1ll << 62};
  std::vector<uint8_t> bytes{1, 2, 3};
  float scalar = 4.5f;
  {
    SafetensorsWriter writer(folder / "f",
                             {{"u", DType::u8, {3}},
                              {"w", DType::f32, {2, 3}},
                              {"l", DType::i64, {2}},
                              {"s", DType::f32, {}},
                              {"e", DType::f16, {0, 5}}},
                             {{"step", "3"}});
    writer.write("u", view_of(bytes.data(), {3}));
    writer.write("s", view_of(&scalar, {}));
    writer.write("w", view_of(floats.data(), {6}));
    writer.write("e", View{});
    writer.write("l", view_of(longs.data(), {2}));
    writer.finish();
  }
  const SafetensorsFile file(folder / "f");
  std::vector<std::string> names;
  for (const auto& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"l", "s", "w", "e", "u"}));  // larger types first, then by name
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"step", "3"}}));
  std::vector<float> floats_back(6);
  file.read_into(file.get("w"), view_of(floats_back.data(), {2, 3}));
  EXPECT_EQ(floats_back, floats);
  std::vector<int64_t> longs_back(2);
  file.read_into(file.get("l"), view_of(longs_back.data(), {2}));
  EXPECT_EQ(longs_back, longs);
  float scalar_back = 0;
  file.read_into(file.get("s"), view_of(&scalar_back, {}));
  EXPECT_EQ(scalar_back, scalar);
  EXPECT_EQ(std::memcmp(file.data(file.get("u")), bytes.data(), 3), 0);
  file.read_into(file.get("e"), View{});
  EXPECT_EQ(file.find("nothing"), nullptr);
}

TEST(SafetensorsWriter, WritesTheLayoutOfTheFormat) {
  TemporaryFolder folder;
  uint8_t value = 7;
  SafetensorsWriter writer(folder / "f", {{"x", DType::u8, {1}}});
  writer.write("x", view_of(&value, {1}));
  writer.finish();
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}    )";
  ASSERT_EQ(header.size() % 8, 0u);
  std::string expected = safetensors_bytes(header, 1);
  expected.back() = 7;
  EXPECT_EQ(contents(folder / "f"), expected);
}

TEST(SafetensorsWriter, ChecksumsCoverTheFile) {
  TemporaryFolder folder;
  // As bf16, these values fill the writer's buffer of 1 MiB once completely and once in part.
  auto values = random_floats(1'000'003);
  SafetensorsWriter writer(folder / "f", {{"a", DType::bf16, {1'000'003}}, {"b", DType::f32, {3}}});
  writer.write("b", view_of(values.data(), {3}));
  writer.write("a", view_of(values.data(), {1'000'003}));
  const std::string text = contents(folder / "f");
  uint64_t reached = 0;
  for (const auto& segment : writer.finish()) {
    EXPECT_EQ(segment.begin, reached);
    EXPECT_EQ(segment.checksum, checksum_of(text.data() + segment.begin, segment.end - segment.begin));
    reached = segment.end;
  }
  EXPECT_EQ(reached, text.size());
}

// If a tensor is written in pieces, the sizes of the pieces do not change the file or its checksums.
TEST(SafetensorsWriter, PiecesMakeUpATensor) {
  TemporaryFolder folder(memory_folder());
  // The file holds the values as f32, in two segments of at most 64 MiB. Each segment has its own checksum.
  constexpr int64_t kCount = 20'000'003;
  std::vector<uint16_t> values(kCount);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(0x3f80 + i % 127);
  const View all{reinterpret_cast<std::byte*>(values.data()), DType::bf16, {kCount}};
  ThreadPool pool(2);
  const auto write = [&](const char* name, const std::vector<int64_t>& ends) {
    SafetensorsWriter writer(folder / name, {{"x", DType::f32, {kCount}}, {"y", DType::f32, {3}}});
    writer.write("y", all.rows(0, 3));
    int64_t begin = 0;
    for (const int64_t end : ends) {
      writer.write("x", all.rows(begin, end), &pool);
      begin = end;
    }
    return writer.finish();
  };
  const auto complete = write("complete", {kCount}),
             pieces = write("pieces", {0, 1, 5'000'000, 16'777'215, 17'000'000, kCount});
  ASSERT_EQ(complete.size(), 4u);  // the header, two segments of x, y
  ASSERT_EQ(pieces.size(), 4u);
  const std::string text = contents(folder / "complete");
  EXPECT_TRUE(contents(folder / "pieces") == text);
  for (size_t i = 0; i < complete.size(); ++i) {
    EXPECT_EQ(pieces[i].begin, complete[i].begin);
    EXPECT_EQ(pieces[i].checksum, complete[i].checksum);
    EXPECT_EQ(complete[i].checksum, checksum_of(text.data() + complete[i].begin, complete[i].end - complete[i].begin));
  }
  EXPECT_EQ(complete.back().end, text.size());
  std::vector<float> back(kCount);
  SafetensorsFile file(folder / "pieces");
  file.read_into(file.get("x"), view_of(back.data(), {kCount}), &pool);
  for (size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], bf16_to_f32(values[i])) << i;
}

// `epsilon`: the largest relative error when an f32 is rounded to a normal number of the type.
struct Rounding {
  DType dtype;
  double epsilon;
};

TEST(SafetensorsFile, ConvertsAmongFloatingPointTypes) {
  TemporaryFolder folder;
  constexpr int64_t kCount = 3'000'001;  // read in several chunks (of 4 MiB), for every type
  auto values = random_floats(kCount);
  ThreadPool pool(3);
  for (const auto [dtype, epsilon] : {Rounding{DType::f64, 0}, Rounding{DType::f32, 0}, Rounding{DType::f16, 0x1p-11},
                                      Rounding{DType::bf16, 0x1p-8}}) {
    const auto path = folder / name_of(dtype);
    SafetensorsWriter writer(path, {{"x", dtype, {kCount}}});
    writer.write("x", view_of(values.data(), {kCount}));
    writer.finish();
    const SafetensorsFile file(path);
    std::vector<float> back(kCount);
    file.read_into(file.get("x"), view_of(back.data(), {kCount}), &pool);
    double worst = 0;
    for (size_t i = 0; i < kCount; ++i) {
      const double error = std::abs(double(back[i]) - double(values[i]));
      // Smaller values are subnormal in f16, so their relative errors may be larger than `epsilon`.
      if (std::abs(values[i]) > 0x1p-14) worst = std::max(worst, error / std::abs(values[i]));
    }
    EXPECT_LE(worst, epsilon) << name_of(dtype);

    // A run with 16-bit parameters and f32 masters reads the masters as two arrays: the rounded values, and the rests.
    // A rest is what the rounding removed from a value.
    for (const DType narrow : {DType::f16, DType::bf16}) {
      std::vector<uint16_t> halves(kCount);
      std::vector<int16_t> rests(kCount);
      file.read_into(file.get("x"), {reinterpret_cast<std::byte*>(halves.data()), narrow, {kCount}}, &pool);
      file.read_into(file.get("x"), {reinterpret_cast<std::byte*>(rests.data()), rest_of(narrow), {kCount}}, &pool);
      const bool f16 = narrow == DType::f16;
      for (size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(halves[i], f16 ? f32_to_f16(back[i]) : f32_to_bf16(back[i])) << name_of(dtype) << " " << i;
        ASSERT_EQ(rests[i], f16 ? f16_rest_of(back[i]) : bf16_rest_of(back[i])) << name_of(dtype) << " " << i;
      }
    }

    std::vector<float> part(2'000'000);  // a part of the tensor, as one of several ranks reads it
    file.read_range_into(file.get("x"), 777'777, 2'777'777, view_of(part.data(), {2'000'000}), &pool);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), back.begin() + 777'777)) << name_of(dtype);
  }
}

TEST(SafetensorsFile, RefusesNonFiniteValues) {
  TemporaryFolder folder;
  int count = 0;
  const auto expect = [&](double value, DType stored, DType read, const std::string& message) {
    std::vector<double> values(10'000, 1000.0);
    values[7777] = value;
    const std::string name = std::to_string(++count);
    SafetensorsWriter writer(folder / name, {{"h.0.weight", stored, {10'000}}});
    writer.write("h.0.weight", view_of(values.data(), {10'000}));
    writer.finish();
    const SafetensorsFile file(folder / name);
    std::vector<std::byte> target(10'000 * size_of(read));
    const TensorInfo& info = file.get("h.0.weight");
    file.read_range_into(info, 0, 7777, {target.data(), read, {7777}});  // this range ends before the bad value
    const auto rest = [&] { file.read_range_into(info, 5000, 10'000, {target.data(), read, {5000}}); };
    if (message.empty())
      EXPECT_NO_THROW(rest());
    else
      EXPECT_THAT(error_of<InputError>(rest), HasSubstr("tensor \"h.0.weight\" contains " + message));
  };
  for (const DType stored : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const DType read : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      expect(-3, stored, read, "");
      expect(NAN, stored, read, "NaN at element 7777. The file is damaged, or its training diverged");
      expect(-INFINITY, stored, read, "infinity at element 7777");
    }
  }
  expect(-70000, DType::f32, DType::f16, "-70000, but the largest fp16 value is 65504. Use precision bf16 or fp32");
  expect(-70000, DType::f32, DType::bf16, "");
  expect(3.4e38, DType::f32, DType::bf16,
         "3.3999999521443642e+38, but the largest bf16 value is 3.3895313892515355e+38");
  expect(1e300, DType::f64, DType::f32, "1e+300, but the largest fp32 value is 3.4028234663852886e+38");
}

TEST(SafetensorsFile, ReadsTensorsThatAreNotAligned) {
  TemporaryFolder folder;
  const uint16_t half = 0x3c00;  // 1.0
  std::string bytes = safetensors_bytes(R"({"x":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}} )", 4);
  ASSERT_EQ((bytes.size() - 4) % 2, 1u);
  std::memcpy(bytes.data() + bytes.size() - 4, &half, 2);
  put(folder / "f", bytes);
  const SafetensorsFile file(folder / "f");
  std::vector<float> back(2, -1.0f);
  file.read_into(file.get("x"), view_of(back.data(), {2}));
  EXPECT_EQ(back, (std::vector<float>{1.0f, 0.0f}));
}

TEST(SafetensorsFile, RefusesUnsupportedTypesOnlyWhenRead) {
  TemporaryFolder folder;
  put(folder / "f", safetensors_bytes(R"({"b":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},)"
                                      R"("deep":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[1,2]},)"
                                      R"("i":{"dtype":"I32","shape":[],"data_offsets":[2,6]}})",
                                      6));
  const SafetensorsFile file(folder / "f");
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_THAT(error_of<InputError>([&] { file.get("b"); }), HasSubstr("BOOL"));
  EXPECT_THAT(error_of<InputError>([&] { file.get("deep"); }), HasSubstr("5 dimensions"));
  EXPECT_THAT(error_of<InputError>([&] { file.get("c"); }), HasSubstr("no tensor \"c\""));
  float value;
  EXPECT_THAT(error_of<InputError>([&] { file.read_into(file.get("i"), view_of(&value, {})); }), HasSubstr("I32"));
}

TEST(SafetensorsFile, MissingFoldersAndTruncatedFilesAreErrors) {
  TemporaryFolder folder;
  EXPECT_THAT(error_of<InputError>([&] { SafetensorsFile f(folder / "none"); }), HasSubstr("No such file"));
  EXPECT_THAT(error_of<InputError>([&] { SafetensorsFile f(folder.path()); }), HasSubstr("is a folder, not a file"));
  auto values = random_floats(10);
  SafetensorsWriter writer(folder / "f", {{"x", DType::f32, {10}}});
  writer.write("x", view_of(values.data(), {10}));
  writer.finish();
  const std::string complete = contents(folder / "f");
  for (size_t length = 0; length < complete.size(); ++length) {
    put(folder / "cut", complete.substr(0, length));
    EXPECT_THAT(error_of<InputError>([&] { SafetensorsFile f(folder / "cut"); }), HasSubstr("cut")) << length;
  }
}

TEST(SafetensorsFile, FileThatShrinksWhileItIsOpenIsAnError) {
  TemporaryFolder folder;
  auto values = random_floats(100'000);
  SafetensorsWriter writer(folder / "f", {{"x", DType::f32, {100'000}}});
  writer.write("x", view_of(values.data(), {100'000}));
  writer.finish();
  const SafetensorsFile file(folder / "f");
  std::filesystem::resize_file(folder / "f", 8192);
  EXPECT_THAT(error_of<InputError>([&] { file.read_into(file.get("x"), view_of(values.data(), {100'000})); }),
              HasSubstr("cannot be read"));
}

int64_t resident_file_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "RssFile:" && status >> kib) return kib;
  }
  return -1;
}

TEST(SafetensorsFile, ReadPagesLeaveTheResidentSet) {
  TemporaryFolder folder;
  constexpr int64_t kCount = 16 << 20;  // 64 MiB
  std::vector<float> values(kCount, 1.0f);
  SafetensorsWriter writer(folder / "f", {{"x", DType::f32, {kCount}}});
  writer.write("x", view_of(values.data(), {kCount}));
  writer.finish();
  const SafetensorsFile file(folder / "f");
  const int64_t before = resident_file_kib();
  ASSERT_GE(before, 0);
  file.read_into(file.get("x"), view_of(values.data(), {kCount}));
  EXPECT_LT(resident_file_kib() - before, 8 << 10);  // 8 MiB: two chunks
}

// Writes a file of slightly more than 4 MiB to `path`, where only 1 MiB fits. Expects that no part of the file remains,
// and that the error message contains the number of bytes that the file needs (4194304 and the header).
void expect_disk_full(const std::filesystem::path& path) {
  constexpr int64_t kCount = 1 << 20;
  const std::string message = error_of<RunError>([&] {
    std::vector<float> values(kCount);
    SafetensorsWriter writer(path, {{"x", DType::f32, {kCount}}});
    writer.write("x", view_of(values.data(), {kCount}));
    writer.finish();
  });
  EXPECT_THAT(message, HasSubstr(path.string() + ": cannot write 4194"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SafetensorsWriter, FullDiskIsAnError) {
  TemporaryFolder folder;
  if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=1m") != 0) GTEST_SKIP() << "no right to mount a tmpfs";
  expect_disk_full(folder / "f");
  umount(folder.path().c_str());
}

TEST(SafetensorsWriter, FileSizeLimitIsAnError) {
  TemporaryFolder folder;
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_disk_full(folder / "f");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
}

TEST(SafetensorsWriter, UnfinishedFileIsRemoved) {
  TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "f", {{"x", DType::f32, {4}}});
    EXPECT_TRUE(std::filesystem::exists(folder / "f"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

TEST(SafetensorsWriter, NeverOverwrites) {
  TemporaryFolder folder;
  put(folder / "f", "precious");
  EXPECT_THAT(error_of<RunError>([&] { SafetensorsWriter writer(folder / "f", {}); }), HasSubstr("File exists"));
  EXPECT_EQ(contents(folder / "f"), "precious");
}

TEST(File, FullDiskErrorShowsNeededAndFreeSpace) {
  const std::string message = error_of<RunError>([] { throw_write_error("/dev/full", ENOSPC, 12); });
  EXPECT_THAT(message, HasSubstr("12 bytes"));
  EXPECT_THAT(message, HasSubstr("bytes are free"));
}

}  // namespace
}  // namespace tessera
