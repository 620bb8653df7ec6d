#include "tessera/report/summary.h"

#include <fcntl.h>

#include "tessera/report/output_file.h"

namespace tessera {

void write_summary(const std::string& path, const Record& summary) {
  OutputFile file(path + ".partial", O_TRUNC);
  file.append(to_pretty_json(summary) + "\n");
  file.sync();
  file.rename_to(path);
}

}  // namespace tessera
