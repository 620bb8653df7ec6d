// Tests the weight files of a model: how tensors are divided among files, and that any number of ranks writes the same
// bytes.
#include "tessera/store/model_shards.h"

#include <sys/resource.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "store_test_util.h"
#include "tessera/base/random.h"
#include "tessera/store/model_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the index of each tensor's file, in the order of `tensors`.
std::vector<size_t> files_of(const std::vector<PlannedTensor>& tensors, int64_t max_bytes) {
  const ModelShards shards(tensors, max_bytes);
  std::vector<size_t> files;
  for (const PlannedTensor& tensor : tensors) files.push_back(shards.place(tensor.name).file);
  return files;
}

TEST(ModelShards, FillsOneFileAfterTheOther) {
  const DType f = DType::f32, h = DType::bf16;
  // The tensors a to f have 16, 16, 8, 40, 8 and 4 bytes.
  const std::vector<PlannedTensor> tensors{{"a", f, {4}},  {"b", f, {2, 2}}, {"c", h, {4}},
                                           {"d", f, {10}}, {"e", f, {2}},    {"f", h, {2}}};
  EXPECT_THAT(files_of(tensors, 92), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(files_of(tensors, 91), ElementsAre(0, 0, 0, 0, 0, 1));
  EXPECT_THAT(files_of(tensors, 40), ElementsAre(0, 0, 0, 1, 2, 2));
  EXPECT_THAT(files_of(tensors, 39), ElementsAre(0, 0, 1, 2, 1, 1)) << "d is alone, and e and f go into file 1";
  EXPECT_THAT(files_of(tensors, 1), ElementsAre(0, 1, 2, 3, 4, 5));
  const ModelShards shards(tensors, 40);
  EXPECT_EQ(shards.file_name(0), "model-00001-of-00003.safetensors");
  EXPECT_EQ(shards.file_name(2), "model-00003-of-00003.safetensors");
  EXPECT_EQ(ModelShards(tensors, 92).file_name(0), "model.safetensors");
}

// Tensors with random types, shapes and values, and a random limit on the bytes of a file.
struct Draw {
  std::vector<PlannedTensor> tensors;
  std::vector<std::vector<float>> values;
  int64_t max_bytes = 0, total_bytes = 0;

  explicit Draw(uint64_t seed) {
    RandomStream random(seed, 0);
    const DType types[] = {DType::f32, DType::bf16, DType::f16};
    const uint64_t count = 1 + random.next_below(12);
    const bool is_mixed = random.next_below(2) == 0;
    for (uint64_t i = 0; i < count; ++i) {
      Shape shape{static_cast<int64_t>(1 + random.next_below(40))};
      if (random.next_below(2)) shape = {static_cast<int64_t>(1 + random.next_below(30)), shape[0]};
      const DType dtype = types[is_mixed ? random.next_below(3) : seed % 3];
      tensors.push_back({"t" + std::to_string(random.next_below(1000)) + "." + std::to_string(i), dtype, shape});
      total_bytes += shape.num_elems() * static_cast<int64_t>(size_of(dtype));
      for (int64_t n = 0; n < shape.num_elems(); ++n) {
        if (n == 0) values.emplace_back();
        values.back().push_back(static_cast<float>(static_cast<int64_t>(random.next_below(2001)) - 1000) / 7);
      }
    }
    max_bytes = static_cast<int64_t>(1 + random.next_below(static_cast<uint64_t>(total_bytes + 100)));
  }
};

// Writes the tensors of a Draw into a folder, with `num_ranks` threads, one per rank. Each rank writes one range of
// each tensor, in two pieces. It writes the second piece first, because the order of writes must not matter.
void write_folder(const Draw& draw, const fs::path& folder, int num_ranks) {
  const ModelShards shards(draw.tensors, draw.max_bytes);
  shards.create_files(folder);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) {
    ranks.emplace_back([&, rank] {
      ThreadPool pool(1);
      ShardWriter writer(shards, folder, pool);
      for (size_t i = 0; i < draw.tensors.size(); ++i) {
        const int64_t n = draw.tensors[i].shape.num_elems();
        const int64_t begin = n * rank / num_ranks, end = n * (rank + 1) / num_ranks, cut = (2 * begin + end) / 3;
        const View flat = view_of(const_cast<float*>(draw.values[i].data()), {n});
        writer.write(draw.tensors[i].name, cut, flat.rows(cut, end));
        writer.write(draw.tensors[i].name, begin, flat.rows(begin, cut));
      }
      writer.sync();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  shards.complete_files(folder);
}

TEST(ModelShards, AnyNumberOfRanksWritesTheSameFiles) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Draw draw(seed);
    TemporaryFolder one(memory_folder());
    write_folder(draw, one.path(), 1);
    for (const int num_ranks : {2, 3, 4}) {
      TemporaryFolder several(memory_folder());
      write_folder(draw, several.path(), num_ranks);
      ASSERT_EQ(names_in(several.path()), names_in(one.path()));
      for (const std::string& name : names_in(one.path())) EXPECT_EQ(contents(several / name), contents(one / name));
    }
  }
}

TEST(ModelShards, HoldEveryTensorOnceAndKeepToTheLimit) {
  int num_sharded = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    const Draw draw(seed);
    TemporaryFolder folder(memory_folder());
    write_folder(draw, folder.path(), 1);
    size_t num_tensors = 0;
    for (const std::string& name : names_in(folder.path())) {
      if (name.ends_with(".json")) continue;
      const SafetensorsFile file(folder / name);
      EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"written_by", "tessera"}}));
      num_tensors += file.tensors().size();
      const uint64_t bytes = file.tensors().back().end;
      EXPECT_TRUE(file.tensors().size() == 1 || bytes <= static_cast<uint64_t>(draw.max_bytes)) << name << " " << bytes;
    }
    EXPECT_EQ(num_tensors, draw.tensors.size());
    const fs::path index = folder / "model.safetensors.index.json";
    EXPECT_EQ(fs::exists(index), draw.total_bytes > draw.max_bytes && draw.tensors.size() > 1);
    if (fs::exists(index)) {
      ++num_sharded;
      EXPECT_EQ(nlohmann::json::parse(contents(index)).at("metadata").at("total_size"), draw.total_bytes);
    }
    const TensorSource source(folder.path());
    for (size_t i = 0; i < draw.tensors.size(); ++i) {
      const PlannedTensor& tensor = draw.tensors[i];
      EXPECT_EQ(source.get(tensor.name).dtype, tensor.dtype);
      ASSERT_EQ(source.get(tensor.name).shape(), tensor.shape);
      std::vector<float> expected(draw.values[i]), got(expected.size());
      std::vector<uint16_t> narrow(expected.size());
      if (tensor.dtype != DType::f32) {  // the file contains values rounded to the tensor's type
        convert(expected.data(), DType::f32, narrow.data(), tensor.dtype, expected.size());
        convert(narrow.data(), tensor.dtype, expected.data(), DType::f32, expected.size());
      }
      source.read_into(tensor.name, view_of(got.data(), tensor.shape));
      EXPECT_EQ(got, expected) << tensor.name;
    }
  }
  EXPECT_GT(num_sharded, 50);
}

TEST(ModelShards, OneFileHasTheBytesThatSafetensorsWriterWrites) {
  Draw draw(7);
  draw.max_bytes = draw.total_bytes;
  TemporaryFolder folder(memory_folder());
  write_folder(draw, folder.path(), 2);
  SafetensorsWriter writer(folder / "other", draw.tensors, {{"written_by", "tessera"}});
  for (size_t i = 0; i < draw.tensors.size(); ++i) {
    writer.write(draw.tensors[i].name, view_of(draw.values[i].data(), draw.tensors[i].shape));
  }
  writer.finish();
  EXPECT_EQ(contents(folder / "other"), contents(folder / "model.safetensors"));
}

// Writing and opening a model must not keep all its files open, because systems limit the open files of a process. The
// test has 120 files and allows 60 open files.
TEST(ModelShards, NeedFewOpenFiles) {
  Draw draw(0);
  draw.tensors.clear();
  draw.values.clear();
  for (int i = 0; i < 120; ++i) {
    draw.tensors.push_back({"t" + std::to_string(i), DType::f32, {2}});
    draw.values.push_back({static_cast<float>(i), -1});
  }
  draw.max_bytes = 1;  // each tensor gets its own file
  TemporaryFolder folder(memory_folder());
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  struct rlimit few = before;
  few.rlim_cur = 60;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_NO_THROW(write_folder(draw, folder.path(), 1));
  const auto source = [&] {
    try {
      return std::make_optional<TensorSource>(folder.path());
    } catch (const Error&) {
      return std::optional<TensorSource>();
    }
  }();
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(source) << "TensorSource must not keep all files open";
  for (size_t i = 0; i < draw.tensors.size(); ++i) {
    float got[2];
    source->read_into(draw.tensors[i].name, view_of(got, {2}));
    EXPECT_EQ(got[0], draw.values[i][0]);
  }
}

// complete_files() writes the headers last, so a reader must refuse a file that is still being written. create_files()
// must refuse to replace existing files.
TEST(ModelShards, FilesWithoutHeaderAreRefused) {
  const Draw draw(3);
  TemporaryFolder folder(memory_folder());
  const ModelShards shards(draw.tensors, draw.total_bytes);
  shards.create_files(folder.path());
  EXPECT_THAT(error_of<InputError>([&] { SafetensorsFile(folder / "model.safetensors"); }),
              testing::HasSubstr("model.safetensors"));
  EXPECT_THAT(error_of<RunError>([&] { shards.create_files(folder.path()); }), testing::HasSubstr("File exists"));
}

}  // namespace
}  // namespace tessera
