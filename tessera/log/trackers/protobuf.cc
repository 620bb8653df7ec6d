#include "tessera/log/trackers/protobuf.h"

#include <bit>

namespace tessera {

void append_little_endian(std::string& text, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>((value >> (8 * i)) & 0xFF);
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = (value << 8) | static_cast<uint8_t>(bytes[i - 1]);
  return value;
}

void ProtoMessage::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
  bytes_ += static_cast<char>(value);
}

namespace {

uint64_t key_of(int field, int wire_type) {
  return static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire_type);
}

}  // namespace

ProtoMessage& ProtoMessage::integer(int field, int64_t value) {
  varint(key_of(field, 0));
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtoMessage& ProtoMessage::real64(int field, double value) {
  varint(key_of(field, 1));
  append_little_endian(bytes_, std::bit_cast<uint64_t>(value), 8);
  return *this;
}

ProtoMessage& ProtoMessage::real32(int field, float value) {
  varint(key_of(field, 5));
  append_little_endian(bytes_, std::bit_cast<uint32_t>(value), 4);
  return *this;
}

ProtoMessage& ProtoMessage::text(int field, std::string_view value) {
  varint(key_of(field, 2));
  varint(value.size());
  bytes_ += value;
  return *this;
}

std::optional<uint64_t> ProtoReader::varint() {
  uint64_t value = 0;
  for (size_t i = 0; i < rest_.size() && i < 10; ++i) {
    const auto byte = static_cast<uint8_t>(rest_[i]);
    value |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
    if (byte < 0x80) {
      rest_.remove_prefix(i + 1);
      return value;
    }
  }
  return std::nullopt;
}

std::optional<ProtoField> ProtoReader::next() {
  if (rest_.empty() || is_damaged_) return std::nullopt;
  is_damaged_ = true;
  const auto key = varint();
  if (!key || *key >> 3 == 0 || *key >> 3 > 0x1FFFFFFF) return std::nullopt;
  ProtoField field{
      .number = static_cast<int>(*key >> 3), .wire_type = static_cast<int>(*key & 7), .value = 0, .bytes = {}};
  size_t length = 0;
  if (field.wire_type == 0 || field.wire_type == 2) {
    const auto value = varint();
    if (!value || (field.wire_type == 2 && *value > rest_.size())) return std::nullopt;
    field.value = *value;
    if (field.wire_type == 2) length = static_cast<size_t>(*value);
  } else if (field.wire_type == 1 || field.wire_type == 5) {
    length = field.wire_type == 1 ? 8 : 4;
    if (rest_.size() < length) return std::nullopt;
    field.value = little_endian(rest_.substr(0, length));
  } else {
    return std::nullopt;
  }
  field.bytes = rest_.substr(0, length);
  rest_.remove_prefix(length);
  is_damaged_ = false;
  return field;
}

std::optional<ProtoField> find_field(std::string_view message, int number) {
  ProtoReader reader(message);
  while (const auto field = reader.next()) {
    if (field->number == number) return field;
  }
  return std::nullopt;
}

}  // namespace tessera
