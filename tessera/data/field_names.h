// The keys that hold the fields of a data row.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// A field of a row usually has its own name as its key. A data set may have another key for it.
class FieldNames {
 public:
  // The names of all fields. "role", "content", "from", "value" and "tool_calls" are fields of a message, and the
  // others are fields of a row.
  static const std::vector<std::string>& all();

  // The key becomes the key of the field. Returns the field that already has this key by an earlier call, in the same
  // kind of object. Then nothing changes. Otherwise returns an empty text.
  std::string rename(const std::string& field, const std::string& key);
  bool is_renamed(std::string_view field) const { return keys_.find(field) != keys_.end(); }

  // The key of a field. Null if a renamed field has taken the key. The pointer is valid as long as this object and
  // `field` are.
  const char* key(const char* field) const;

  // "messages=dialog,role=speaker", in the order of all(). Empty if no field is renamed.
  std::string text() const;

 private:
  std::map<std::string, std::string, std::less<>> keys_;  // of the renamed fields
};

}  // namespace tessera
