#include "tessera/log/trackers/event_file.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/log/trackers/crc.h"
#include "tessera/log/trackers/protobuf.h"

namespace tessera {
namespace {

// The numbers of fields and the values of enumerations, from tensorboard's event.proto, summary.proto, tensor.proto and
// types.proto.
enum EventField { kWallTime = 1, kStep = 2, kFileVersion = 3, kEventSummary = 5, kSessionLog = 7 };
enum ValueField { kTag = 1, kSimpleValue = 2, kTensor = 8, kMetadata = 9 };
constexpr int kSummaryValue = 1, kSessionStatus = 1, kSessionStart = 1;
constexpr int kPluginData = 1, kPluginName = 1, kDataClass = 4, kDataClassTensor = 2;
constexpr int kTensorType = 1, kTypeString = 7, kTensorShape = 2, kStringValue = 8;

constexpr size_t kHeadBytes = 12, kTailBytes = 4;

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

ProtoMessage event_at(double wall_s, int64_t step) {
  ProtoMessage event;
  event.real64(kWallTime, wall_s);
  if (step != 0) event.integer(kStep, step);
  return event;
}

}  // namespace

std::string version_event(double wall_s) {
  return event_at(wall_s, 0).text(kFileVersion, "brain.Event:2").bytes();
}

std::string start_event(int64_t first_step, double wall_s) {
  return event_at(wall_s, first_step)
      .message(kSessionLog, ProtoMessage().integer(kSessionStatus, kSessionStart))
      .bytes();
}

std::string text_event(const std::string& tag, std::string_view markdown, double wall_s) {
  ProtoMessage tensor, metadata, value, summary;
  tensor.integer(kTensorType, kTypeString).message(kTensorShape, {}).text(kStringValue, markdown);
  metadata.message(kPluginData, ProtoMessage().text(kPluginName, "text")).integer(kDataClass, kDataClassTensor);
  value.text(kTag, tag).message(kTensor, tensor).message(kMetadata, metadata);
  summary.message(kSummaryValue, value);
  return event_at(wall_s, 0).message(kEventSummary, summary).bytes();
}

std::string scalars_event(const Record& scalars, int64_t step, double wall_s) {
  ProtoMessage summary;
  for (const auto& [tag, number] : scalars.items()) {
    const float value = number.is_number() ? number.get<float>() : std::numeric_limits<float>::quiet_NaN();
    summary.message(kSummaryValue, ProtoMessage().text(kTag, tag).real32(kSimpleValue, value));
  }
  return event_at(wall_s, step).message(kEventSummary, summary).bytes();
}

std::string event_bytes(std::string_view event) {
  std::string bytes;
  append_little_endian(bytes, event.size(), 8);
  append_little_endian(bytes, masked_crc(bytes), 4);
  bytes += event;
  append_little_endian(bytes, masked_crc(event), 4);
  return bytes;
}

std::optional<std::string_view> EventFileReader::next() {
  const std::string_view rest = file_.substr(static_cast<size_t>(end_bytes_));
  if (rest.size() < kHeadBytes + kTailBytes) return std::nullopt;
  const uint64_t length = little_endian(rest.substr(0, 8));
  if (little_endian(rest.substr(8, 4)) != masked_crc(rest.substr(0, 8))) return std::nullopt;
  if (length > rest.size() - kHeadBytes - kTailBytes) return std::nullopt;
  const std::string_view event = rest.substr(kHeadBytes, static_cast<size_t>(length));
  if (little_endian(rest.substr(kHeadBytes + event.size(), 4)) != masked_crc(event)) return std::nullopt;
  end_bytes_ += static_cast<int64_t>(kHeadBytes + event.size() + kTailBytes);
  return event;
}

bool has_tag(std::string_view event, std::string_view tag, int64_t& step) {
  const auto summary = find_field(event, kEventSummary);
  if (!summary) return false;
  const auto at = find_field(event, kStep);
  step = at ? static_cast<int64_t>(at->value) : 0;
  ProtoReader values(summary->bytes);
  while (const auto value = values.next()) {
    const auto its_tag = find_field(value->bytes, kTag);
    if (its_tag && its_tag->bytes == tag) return true;
  }
  return false;
}

}  // namespace tessera
