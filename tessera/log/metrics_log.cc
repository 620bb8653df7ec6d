#include "tessera/log/metrics_log.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"

namespace tessera {
MetricsLog MetricsLog::create(const std::string& path) {
  return MetricsLog(OutputFile(path, O_TRUNC));
}

MetricsLog MetricsLog::resume(const std::string& path, int64_t size_bytes) {
  const std::string remedy =
      "Put back the file that belongs to the checkpoint, or start again in another " + option("output_dir");
  const std::string text = read_file(path, {.remedy = remedy});
  const auto kept = static_cast<size_t>(size_bytes);
  if (size_bytes < 0 || kept > text.size()) {
    throw InputError(path, fmt::format("it has {} bytes, but the checkpoint recorded {}", text.size(), size_bytes),
                     remedy);
  }
  if (kept > 0 && text[kept - 1] != '\n') {
    throw InputError(path, fmt::format("no record ends at byte {}, where the checkpoint's last record ended", kept),
                     remedy);
  }
  OutputFile file(path, 0);
  file.truncate(size_bytes);
  return MetricsLog(std::move(file));
}

Record MetricsLog::append(std::string_view kind, int64_t step, double epoch, const Record& values,
                          const Record& timing) {
  for (const char* reserved : {"schema", "kind", "step", "epoch", "timing"}) TESSERA_ASSERT(!values.contains(reserved));
  Record record{{"schema", kSchema}, {"kind", std::string(kind)}, {"step", step}, {"epoch", epoch}};
  if (!values.empty()) record.update(values);
  if (!timing.empty()) record["timing"] = timing;
  file_.append(to_json(record) + "\n");
  return record;
}

void MetricsLog::keep_at(const std::string& path) {
  const bool is_there = file_.is_at(path);
  if (is_there && file_.path() == path) return;
  const std::string records = is_there ? "" : file_.content();
  OutputFile file(path, is_there ? 0 : O_TRUNC);
  if (!is_there) file.append(records);
  file_ = std::move(file);
}

int64_t MetricsLog::synced_size_bytes() {
  file_.sync();
  return file_.size_bytes();
}

}  // namespace tessera
