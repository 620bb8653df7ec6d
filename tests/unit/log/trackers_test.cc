#include "tessera/log/trackers/trackers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/log/trackers/crc.h"
#include "tessera/log/trackers/event_file.h"
#include "tessera/log/trackers/protobuf.h"
#include "tessera/log/trackers/tags.h"
#include "tessera/log/trackers/wandb_log.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// What tools/check_trackers.py recorded of files that the packages of TensorBoard and W&B wrote: sizes and checksums of
// W&B logs, and the bytes of a TensorBoard event.
const Record& fixture() {
  static const Record value = Record::parse(read_file(TESSERA_TEST_DIR "/unit/log/trackers_fixture.json", {}));
  return value;
}

std::string pattern(size_t size, size_t index) {
  std::string bytes;
  for (size_t i = 0; i < size; ++i) bytes += static_cast<char>((i * 31 + index * 7 + i / 251) % 256);
  return bytes;
}

std::string log_of(const std::vector<std::string>& records) {
  std::string log = wandb_log_head();
  for (const std::string& record : records) log += wandb_log_bytes(record, static_cast<int64_t>(log.size()));
  return log;
}

// A second reader of complete W&B logs, to check the logs that Tessera writes. It shares only the checksum with
// WandbLogReader. A log consists of blocks of 32768 bytes. The first 7 bytes of the log are its head. A block consists
// of chunks, and each chunk begins with a header of 7 bytes. Zeros fill the block after its last chunk. A chunk is a
// complete record (type 1), or the first part (2), a middle part (3) or the last part (4) of a record.
std::vector<std::string> records_in_blocks(const std::string& log) {
  std::vector<std::string> records;
  bool open = false;
  for (size_t block = 0; block < log.size(); block += 32768) {
    const std::string text = log.substr(block, 32768);
    size_t at = block == 0 ? 7 : 0;
    while (at + 7 <= text.size()) {
      const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<uint8_t>(text[at + i])); };
      const size_t length = byte(4) + 256 * byte(5), type = byte(6);
      const size_t crc = byte(0) + (byte(1) << 8) + (byte(2) << 16) + (byte(3) << 24);
      EXPECT_LE(at + 7 + length, text.size());
      EXPECT_EQ(crc, crc32(text.substr(at + 6, length + 1)));
      EXPECT_EQ(type == 1 || type == 2, !open);
      if (!open) records.emplace_back();
      records.back() += text.substr(at + 7, length);
      open = type == 2 || type == 3;
      at += 7 + length;
    }
    EXPECT_EQ(text.substr(at), std::string(text.size() - at, '\0'));
  }
  EXPECT_FALSE(open);
  return records;
}

std::vector<std::string> records_of(const std::string& log) {
  std::vector<std::string> records;
  WandbLogReader reader(log);
  while (auto record = reader.next()) records.push_back(*record);
  return records;
}

TEST(Trackers, ChecksumsOfKnownTexts) {
  EXPECT_EQ(crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32("56789", crc32("1234")), crc32("123456789"));
  EXPECT_EQ(crc32(""), 0u);
}

TEST(Trackers, ProtobufFields) {
  ProtoMessage message;
  message.integer(1, 150).text(2, "testing").integer(3, -1).real32(20, 1.0f).real64(4, -2.0);
  EXPECT_EQ(message.bytes().substr(0, 3), std::string("\x08\x96\x01"));
  EXPECT_EQ(message.bytes().substr(3, 9), std::string("\x12\x07testing"));
  EXPECT_EQ(message.bytes().substr(12, 11), "\x18" + std::string(9, '\xFF') + "\x01");
  EXPECT_EQ(message.bytes().substr(23, 2), std::string("\xA5\x01"));
  ProtoReader reader(message.bytes());
  std::vector<int> numbers;
  while (const auto field = reader.next()) numbers.push_back(field->number);
  EXPECT_THAT(numbers, ElementsAre(1, 2, 3, 20, 4));
  EXPECT_FALSE(reader.is_damaged());
  EXPECT_EQ(static_cast<int64_t>(find_field(message.bytes(), 3)->value), -1);
  EXPECT_EQ(find_field(message.bytes(), 5), std::nullopt);
}

TEST(Trackers, DamagedProtobufEndsReading) {
  std::mt19937_64 source(7);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes;
    for (auto n = source() % 20; n > 0; --n) bytes += static_cast<char>(source());
    ProtoReader reader(bytes);
    size_t fields = 0;
    while (reader.next()) ++fields;
    EXPECT_LE(fields, bytes.size());
  }
}

TEST(Trackers, LogsEqualThoseOfWandb) {
  for (const Record& log : fixture().at("wandb_logs")) {
    std::vector<std::string> records;
    for (const Record& size : log.at("sizes")) records.push_back(pattern(size.get<size_t>(), records.size()));
    const std::string bytes = log_of(records);
    EXPECT_EQ(bytes.size(), log.at("bytes").get<size_t>()) << log.at("sizes");
    EXPECT_EQ(crc32(bytes), log.at("crc32").get<uint32_t>()) << log.at("sizes");
  }
}

TEST(Trackers, LogsReadBackAtRandomBlockBorders) {
  std::mt19937_64 source(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::string> records;
    size_t size_bytes = 7;
    for (auto n = 2 + source() % 8; n > 0; --n) {
      // About half of the records end close to the border between two blocks.
      const size_t to_border = 32768 - size_bytes % 32768;
      const size_t size = source() % 2 ? source() % 300 : to_border + 32768 * (source() % 3) + source() % 40;
      records.push_back(pattern(source() % 2 || size < 60 ? size : size - 40, records.size()));
      size_bytes = log_of(records).size();
    }
    const std::string log = log_of(records);
    EXPECT_EQ(records_of(log), records);
    EXPECT_EQ(records_in_blocks(log), records);

    // A killed writer leaves a prefix of the log. The complete records in the prefix are readable, and writing
    // continues after them.
    const std::string prefix = log.substr(0, source() % (log.size() + 1));
    WandbLogReader reader(prefix);
    std::vector<std::string> kept;
    while (auto record = reader.next()) kept.push_back(*record);
    ASSERT_LE(kept.size(), records.size());
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), records.begin()));
    if (reader.end_bytes() == 0) continue;
    std::string repaired = prefix.substr(0, static_cast<size_t>(reader.end_bytes()));
    repaired += wandb_log_bytes("new", reader.end_bytes());
    kept.push_back("new");
    EXPECT_EQ(records_in_blocks(repaired), kept);
  }
}

TEST(Trackers, AChangedBitEndsReading) {
  std::mt19937_64 source(3);
  const std::vector<std::string> records{pattern(40000, 0), pattern(10, 1), pattern(33000, 2)};
  const std::string log = log_of(records);
  for (int round = 0; round < 100; ++round) {
    std::string damaged = log;
    damaged[source() % log.size()] ^= static_cast<char>(1 << source() % 8);
    const auto kept = records_of(damaged);
    EXPECT_LE(kept.size(), records.size());
    EXPECT_TRUE(std::equal(kept.begin(), kept.end(), records.begin()));
  }
}

TEST(Trackers, EventsEqualThoseOfTensorboard) {
  const Record scalars{{"train/loss", 1.5}, {"eval/loss", -0.1}};
  std::string hex;
  for (const char c : event_bytes(scalars_event(scalars, 300, 1700000000.25))) {
    for (const int shift : {4, 0}) hex += "0123456789abcdef"[(static_cast<uint8_t>(c) >> shift) & 15];
  }
  EXPECT_EQ(hex, fixture().at("event_record").get<std::string>());
}

TEST(Trackers, EventFilesReadBackUpToTheirDamage) {
  const std::string one = event_bytes(version_event(1)), two = event_bytes(scalars_event({{"a", 1.0}}, 4, 2));
  for (size_t size = 0; size <= one.size() + two.size(); ++size) {
    const std::string file = (one + two).substr(0, size);
    EventFileReader reader(file);
    size_t events = 0;
    while (reader.next()) ++events;
    EXPECT_EQ(events, size < one.size() ? 0u : size < one.size() + two.size() ? 1u : 2u);
  }
}

TEST(Trackers, TagsAreThoseOfTheTrainer) {
  const Record eval{{"schema", 1},
                    {"kind", "eval"},
                    {"step", 4},
                    {"epoch", 0.5},
                    {"eval_loss", 2.5},
                    {"f1", 0.25},
                    {"timing", {{"eval_runtime", 3.0}}}};
  EXPECT_EQ(tags_of(eval),
            (Record{{"train/epoch", 0.5}, {"eval/loss", 2.5}, {"eval/f1", 0.25}, {"eval/runtime", 3.0}}));
  const Record train{{"kind", "train"},
                     {"step", 4},
                     {"epoch", 0.5},
                     {"loss", std::numeric_limits<double>::infinity()},
                     {"timing", {{"runtime_s", 3.0}, {"train/steps_per_second", 2.0}}}};
  EXPECT_EQ(tags_of(train), (Record{{"train/epoch", 0.5}, {"train/loss", nullptr}, {"train/steps_per_second", 2.0}}));
  const double nan = std::numeric_limits<double>::quiet_NaN();  // the step has no target
  const Record empty{{"kind", "train"}, {"epoch", 0.5}, {"loss", nan}, {"grad_norm", Record()}, {"num_targets", 0}};
  EXPECT_EQ(tags_of(empty), (Record{{"train/epoch", 0.5}, {"train/num_targets", 0}}));
  const Record end{{"kind", "summary"}, {"epoch", 1.0}, {"train_loss", 2.0}, {"timing", {{"train_runtime", 9.0}}}};
  EXPECT_EQ(tags_of(end), (Record{{"train/epoch", 1.0}, {"train/train_loss", 2.0}, {"train/train_runtime", 9.0}}));
}

TEST(Trackers, VariablesOfWandb) {
  const WandbVariables v = wandb_variables(
      {{"WANDB_MODE", "Online"}, {"WANDB_TAGS", "a, b c,,"}, {"WANDB_RUN_ID", "x-1"}, {"WANDB_API_KEY", "secret"}});
  EXPECT_TRUE(v.asks_online);
  EXPECT_FALSE(v.is_disabled);
  EXPECT_THAT(v.tags, ElementsAre("a", "b c"));
  EXPECT_EQ(v.run_id, "x-1");
  EXPECT_EQ(v.project, "huggingface");
  EXPECT_TRUE(wandb_variables({{"WANDB_MODE", "disabled"}}).is_disabled);
  EXPECT_TRUE(wandb_variables({{"WANDB_DISABLED", "true"}}).is_disabled);
  EXPECT_THROW(wandb_variables({{"WANDB_MODE", "onlin"}}), UsageError);
  EXPECT_THROW(wandb_variables({{"WANDB_RUN_ID", "../x"}}), UsageError);
}

TEST(Trackers, AFolderThatCannotBeMadeGivesOneWarningEach) {
  std::string folder = (std::filesystem::temp_directory_path() / "tessera_trackers_XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/file") << "x";
  TrackerOptions options;
  options.tensorboard = options.wandb = true;
  options.output_dir = folder;
  options.tracker_dir = folder + "/file";
  std::vector<std::string> notes;
  {
    Trackers trackers(options, {}, 0, [&](const std::string& note) { notes.push_back(note); });
    trackers.append({{"kind", "train"}, {"step", 1}, {"epoch", 0.5}, {"loss", 1.0}}, 1);
  }
  std::filesystem::remove_all(folder);
  ASSERT_THAT(notes, SizeIs(2));
  EXPECT_THAT(notes[0], HasSubstr("the tracker tensorboard stops, and the run continues"));
  EXPECT_THAT(notes[1], HasSubstr("the tracker wandb stops, and the run continues"));
}

}  // namespace
}  // namespace tessera
